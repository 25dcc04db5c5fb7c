// Writes a command's result to standard output.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/error.h"

namespace titan {

// Throws Error if writing fails (a full disk), so that nobody mistakes a truncated result for a complete one.
inline void print_result(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) throw Error("standard output cannot be written", kExitFailed);
}

}  // namespace titan
