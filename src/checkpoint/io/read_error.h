// Tells errors of the operating system from damage of content: a file that cannot be read may be whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace titan::checkpoint {

// An error of the operating system while a checkpoint is read (EIO, ESTALE, EACCES, ...). It says nothing about the
// content, so no older checkpoint may be loaded in place of this one.
class ReadError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Repeats a call that failed with `error` while that may pass (EIO, ESTALE, ENOMEM, EMFILE, ...), at most three times,
// with pauses of up to a second. Warns of each failure ("cannot read PATH: ..."). `again` returns 0 or an errno.
// Returns 0 or the last error.
int retry_after(int error, const char* action, const std::filesystem::path& path, const std::function<int()>& again);

// Throws CheckpointError if `error` says that there is no such file (ENOENT, a link that leads nowhere, a folder), else
// ReadError.
[[noreturn]] void fail_to_read(const char* action, const std::filesystem::path& path, int error);

// Returns the type of what is at `path`; links are followed. not_found for nothing, also for a link that leads nowhere.
// Throws ReadError if that cannot be told.
std::filesystem::file_type type_of(const std::filesystem::path& path);
inline bool is_there(const std::filesystem::path& path) {
  return type_of(path) != std::filesystem::file_type::not_found;
}
inline bool is_file(const std::filesystem::path& path) { return type_of(path) == std::filesystem::file_type::regular; }

// Returns the size of a file; nullopt if there is none. Throws ReadError.
std::optional<std::uint64_t> size_of(const std::filesystem::path& path);

// Returns the names in a folder, unsorted; empty if there is no such folder. Throws ReadError.
std::vector<std::string> listing_of(const std::filesystem::path& folder);

}  // namespace titan::checkpoint
