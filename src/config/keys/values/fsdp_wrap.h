// Reads parallelism.fsdp_wrap: which modules form one group of fully_shard. models/common/wrap_groups.h applies it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan::config {

inline constexpr const char* kFsdpWrapKey = "parallelism.fsdp_wrap";

struct FsdpWrap {
  enum class Kind {
    kBlock,  // the model's own grouping
    kSize,   // a module is a group if its parameters outside inner groups are `min_parameters` or more
    kNames   // each module that one of `names` matches is a group
  };
  Kind kind = Kind::kBlock;
  std::int64_t min_parameters = 0;
  std::vector<std::string> names;  // "layers.*.attention"
};

// Returns the policy of the key's value. Throws ConfigError, naming the key, for an empty list, a size that is not a
// positive integer, and "block" or a size next to other entries.
FsdpWrap parse_fsdp_wrap(const std::vector<std::string>& value);

}  // namespace titan::config
