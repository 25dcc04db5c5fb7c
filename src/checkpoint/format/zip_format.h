// Constants of the zip format for the reader and the writer (PKWARE's APPNOTE.TXT, 4.3.7 and 4.5.3).
#pragma once

#include <cstdint>

namespace titan::checkpoint {

inline constexpr std::uint64_t kLocalHeaderSize = 30;  // without the name and the extra fields
inline constexpr std::uint64_t kMax32 = 0xFFFFFFFF;    // in a 32-bit field: the zip64 extra field has the value

}  // namespace titan::checkpoint
