// Explains errors that mean that this process has reached a limit of the system: of threads, memory, open files or the
// size of a file. Such errors come as a short text of the system, often through libraries that add nothing to it.
#pragma once

#include <exception>
#include <string>

namespace titan {

// Returns `text` with the limits of this process that its first line may be about and what to do, if that line has the
// system's words for such an error ("Resource temporarily unavailable", "Too many open files"). Otherwise, or if a
// limit is named already, returns it unchanged. Call it in the process that has the error: others have other limits.
std::string with_limits(const std::string& text);

// Returns the message of `error` with the limits that it is about.
std::string message_of_error(const std::exception& error);

// True if this process could not start a thread or another process.
bool is_lack_of_threads(const std::exception& error);

}  // namespace titan
