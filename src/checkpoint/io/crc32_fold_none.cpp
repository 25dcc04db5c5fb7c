#include "base/error.h"
#include "checkpoint/io/crc32_fold.h"

namespace titan::checkpoint {

bool can_fold_crc32() { return false; }

std::array<unsigned char, 16> fold_crc32(std::uint32_t, const void*, std::size_t) {
  throw InternalError("this build has no carry-less multiplication");
}

}  // namespace titan::checkpoint
