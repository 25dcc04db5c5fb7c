#include "base/limits/system_file.h"

#include <fstream>

namespace titan {

std::optional<std::int64_t> number_in(const std::string& path) {
  std::int64_t value = 0;
  std::ifstream file(path);
  return file >> value ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> number_after(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string found, rest;
  for (std::int64_t value = 0; file >> found >> value; std::getline(file, rest))
    if (found == name) return value;
  return std::nullopt;
}

}  // namespace titan
