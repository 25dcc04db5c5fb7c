// Writes files that survive a crash: under a temporary name, flushed to disk, then renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// Returns the full file as bytes. Throws DataError naming the path and the reason.
std::string read_file(const std::filesystem::path& path);

// Replaces `path` with `content` in one step: write `path`.tmp, fsync, rename, fsync the folder. After a crash the file
// holds either the old bytes or the new ones. Throws std::system_error with the path in its text.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes all of `bytes` to `fd`, retrying short writes and EINTR. Returns false with errno on failure.
bool write_all(int fd, std::string_view bytes);

// Makes a rename or a removal inside `folder` durable.
void fsync_folder(const std::filesystem::path& folder);

// Makes what any process has written to the file `path` durable. Throws std::system_error with the path in its text.
void fsync_file(const std::filesystem::path& path);

// Returns `path` made absolute, or its nearest parent that exists.
std::filesystem::path existing_part(const std::filesystem::path& path);

// Returns the paths that a shell pattern (*, ?, [...]) matches, sorted bytewise; empty if `pattern`
// is not a pattern, or if a file has exactly that name. As in a shell, * does not match a dot at
// the start of a name. Throws DataError if a folder on the way cannot be read.
std::vector<std::filesystem::path> matches_of(const std::filesystem::path& pattern);

}  // namespace titan
