// Errors that all ranks get alike, as the answer of one collective: the job has one reason, not one per rank. They are
// known by their message, which copies of an error keep, and which a caller may extend in the same way on all ranks.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace titan {
namespace detail {

struct CommonErrors {
  std::mutex mutex;
  // Their first lines. Few: each ends the run, or a save or a load that others follow.
  std::vector<std::pair<std::string, ExitCode>> lines;
};

// Returns the errors of this process, which are never destroyed: other threads may ask at exit.
inline CommonErrors& common_errors() {
  static auto& errors = *new CommonErrors;
  return errors;
}

}  // namespace detail

// Remembers the message of an error that every rank is about to throw, and its exit code. Returns the message.
// Thread-safe.
inline std::string common_error(std::string message, ExitCode exit_code = kExitFailed) {
  auto& errors = detail::common_errors();
  const std::pair<std::string, ExitCode> entry(message.substr(0, message.find('\n')), exit_code);
  const std::lock_guard lock(errors.mutex);
  if (!entry.first.empty() && std::ranges::count(errors.lines, entry) == 0) errors.lines.push_back(entry);
  return message;
}

// Returns the exit code of the remembered error whose first line is in that of `message`; nullopt if there is none.
// Thread-safe.
inline std::optional<ExitCode> code_of_common_error(std::string_view message) {
  auto& errors = detail::common_errors();
  const std::string_view line = message.substr(0, message.find('\n'));
  const std::lock_guard lock(errors.mutex);
  for (const auto& [known, exit_code] : errors.lines)
    if (line.find(known) != std::string_view::npos) return exit_code;
  return std::nullopt;
}

}  // namespace titan
