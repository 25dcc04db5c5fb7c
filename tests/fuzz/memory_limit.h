// Limits the memory that reading an input may take: a declared size must be refused before memory for it is requested.
#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace titan::fuzz {

constexpr std::uint64_t kSpareMemory = 512 << 20;

// Limits the addresses that this process may have to those in use and kSpareMemory more, until it is destroyed. Does
// nothing under a sanitizer, which reserves addresses for itself and ends the process if it gets none. Throws if the
// limit cannot be set: without it nothing would be found.
class MemoryLimit {
 public:
  MemoryLimit() {
    if (kIsSanitized) return;
    const bool has_one_arena = mallopt(M_ARENA_MAX, 1) == 1;  // else each thread could reserve 64 MiB
    const bool is_known = getrlimit(RLIMIT_AS, &before_) == 0;
    rlimit limit = before_;
    limit.rlim_cur = in_use() + kSpareMemory;
    if (!has_one_arena || !is_known || setrlimit(RLIMIT_AS, &limit) != 0)
      throw std::runtime_error("the memory of this process cannot be limited");
  }
  ~MemoryLimit() {
    if (!kIsSanitized) setrlimit(RLIMIT_AS, &before_);
  }
  MemoryLimit(const MemoryLimit&) = delete;

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kIsSanitized = true;
#else
  static constexpr bool kIsSanitized = false;
#endif

  static std::uint64_t in_use() {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t pages = 0;
    statm >> pages;
    return pages * 4096;
  }

  rlimit before_{};
};

}  // namespace titan::fuzz
