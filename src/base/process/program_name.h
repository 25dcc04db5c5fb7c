// Names this process in messages.
#pragma once

#include <cerrno>

namespace titan {

// Returns the name of the program that this process runs, without folders: "titan-train", or that of a program which
// uses the engine as a library. Safe in a signal handler.
inline const char* program_name() { return program_invocation_short_name; }

}  // namespace titan
