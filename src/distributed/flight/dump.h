// The file that a rank writes when a collective hangs: its last collectives and the stacks of its threads.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace titan::dist {

// Sets the file to write; empty, the default, writes nothing. Its folder is created on the first write.
void set_dump_file(std::filesystem::path file);
std::filesystem::path dump_file();

// Writes the file on a separate thread, since the rank may hang on the disk. Replaces an existing file. `why` is its
// first line. Does nothing while a file is being written. Thread-safe.
void start_dump(const std::string& why);
// Waits until no file is being written. Returns false after `patience`.
bool wait_for_dump(std::chrono::milliseconds patience);

// Returns the content of the file. It has the stacks of all threads except the calling one.
std::string dump_text(const std::string& why);

}  // namespace titan::dist
