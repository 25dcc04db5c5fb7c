// The file that a rank writes when a collective does not end: its last collectives, and where its threads stand.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace titan::dist {

// Where this process writes it; the folder is made when there is something to write. Empty, as at first: nowhere.
void set_dump_file(std::filesystem::path file);
std::filesystem::path dump_file();

// Writes the file, replacing one that is there, on a thread of its own: the disk may be what the rank hangs on. `why`
// is its first line. While a file is being written a second call does nothing. Safe from several threads.
void start_dump(const std::string& why);
// Whether no file is being written any more.
bool wait_for_dump(std::chrono::milliseconds patience);

// What is written. The stacks are of all threads but the calling one.
std::string dump_text(const std::string& why);

}  // namespace titan::dist
