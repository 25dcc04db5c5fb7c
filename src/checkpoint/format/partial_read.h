// What was read of a stored record, for the checksums that tell whether it was read as it was written.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

// Some bytes of one record's payload, as they were read.
struct PartialRead {
  std::string file;                // relative to the checkpoint folder
  std::string fqn;                 // for messages
  std::uint64_t record_begin = 0;  // of the payload, in the file
  std::uint64_t record_size = 0;
  std::uint32_t record_crc = 0;  // as it should be
  Piece piece;                   // `begin` from the payload's start on
};

}  // namespace titan::checkpoint
