// Writes what a command is asked for to standard output.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/error.h"

namespace titan {

// Throws Error where it cannot be written (a full disk): who redirects it would take a part for the whole.
inline void print_result(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) throw Error("standard output cannot be written", kExitFailed);
}

}  // namespace titan
