// Reads what is piped into a command.
#pragma once

#include <cstdio>
#include <string>

#include "base/error.h"

namespace titan {

// Returns all of standard input. Throws Error if it cannot be read.
inline std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), stdin)) text.append(buffer, count);
  if (std::ferror(stdin)) throw Error("standard input cannot be read", kExitFailed);
  return text;
}

}  // namespace titan
