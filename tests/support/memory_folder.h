// Where tests keep files that are not about the disk.
#pragma once

#include <unistd.h>

#include <filesystem>

namespace titan::test {

// In memory where the system has such a folder with room, else the one for temporary files: there a flush to the disk
// takes as long as others let it.
inline std::filesystem::path memory_folder() {
  constexpr const char* kMemory = "/dev/shm";
  std::error_code error;
  const auto space = std::filesystem::space(kMemory, error);
  const bool is_large = !error && space.available > (std::uintmax_t{512} << 20);
  return is_large && ::access(kMemory, W_OK) == 0 ? kMemory : std::filesystem::temp_directory_path();
}

}  // namespace titan::test
