// The folder for test files that need no disk.
#pragma once

#include <unistd.h>

#include <filesystem>

namespace titan::test {

// Returns a folder in memory if the system has one with room, else the one for temporary files, where a flush to the
// disk can take long on a busy machine.
inline std::filesystem::path memory_folder() {
  constexpr const char* kMemory = "/dev/shm";
  std::error_code error;
  const auto space = std::filesystem::space(kMemory, error);
  const bool is_large = !error && space.available > (std::uintmax_t{512} << 20);
  return is_large && ::access(kMemory, W_OK) == 0 ? kMemory : std::filesystem::temp_directory_path();
}

}  // namespace titan::test
