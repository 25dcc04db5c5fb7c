// Part of a stored record that was read, with the checksums to verify it.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

// Bytes of one record's payload, as they were read.
struct PartialRead {
  std::string file;                // relative to the checkpoint folder
  std::string fqn;                 // for messages
  std::uint64_t record_begin = 0;  // start of the payload in the file
  std::uint64_t record_size = 0;
  std::uint32_t record_crc = 0;  // expected value
  Piece piece;                   // `begin` counts from the payload's start
};

}  // namespace titan::checkpoint
