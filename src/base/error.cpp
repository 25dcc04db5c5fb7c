#include "base/error.h"

#include <string_view>

namespace titan::detail {

void throw_check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::string_view path = file;
  if (const auto src = path.rfind("src/"); src != std::string_view::npos) path.remove_prefix(src);
  throw InternalError(message + " (check failed: " + condition + " at " + std::string(path) + ":" +
                      std::to_string(line) + ")");
}

}  // namespace titan::detail
