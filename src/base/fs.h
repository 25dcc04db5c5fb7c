// Files that survive a crash: written under a temporary name, flushed to the disk, renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// The whole file as bytes. Throws DataError naming the path and the reason.
std::string read_file(const std::filesystem::path& path);

// Replaces `path` with `content` in one step: write `path`.tmp, fsync, rename, fsync the folder. After a crash the file
// holds either the old bytes or the new ones. Throws std::system_error with the path in its text.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// All of `bytes` to a descriptor, in one write(2) where the system takes them at once, again where a signal interrupts it.
// False, with errno, where it does not go on.
bool write_all(int fd, std::string_view bytes);

// Where a library of this program lies: in ../lib where the program is installed, beside it in a build folder.
std::filesystem::path library_of_program(const std::string& name);

// Makes a rename or a removal inside `folder` durable.
void fsync_folder(const std::filesystem::path& folder);

// Returns what the shell's pattern (*, ?, [...]) matches, sorted bytewise; empty if it is not a pattern, or if there is a file
// of that very name. As in a shell, no * matches a dot at the start of a name. Throws DataError for a folder on the way that
// cannot be read.
std::vector<std::filesystem::path> matches_of(const std::filesystem::path& pattern);

}  // namespace titan
