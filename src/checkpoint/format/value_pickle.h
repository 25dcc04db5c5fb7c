// Converts a Value to pickle bytes and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/value.h"
#include "checkpoint/format/pickle_reader.h"

namespace titan::checkpoint {

// Returns the pickle of `value`. `protocol`: 2 inside torch.save archives, 4 as pickle.dumps writes.
std::string pickle_value(const Value& value, int protocol);

// `what` and `base_offset` name the source in errors (see PickleTree::parse). Throws CheckpointError also for a Python
// value that Value cannot hold (a set, a class instance, a tensor).
Value unpickle_value(std::string bytes, const std::string& what, std::uint64_t base_offset = 0);

}  // namespace titan::checkpoint
