// Returns facts about the groups of fully_shard below a module, for reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"

namespace titan::fsdp {

struct GroupFacts {
  std::string name;                 // of its modules below the root: "layers.3", "norm, output"
  std::int64_t parameters = 0;      // of this rank's tensor-parallel part
  std::int64_t gathered_bytes = 0;  // of all its parameters, with padding, in the dtype of compute
};

// Returns the groups at and below `root` in module order. Call after a forward, which names them.
std::vector<GroupFacts> groups_below(nn::Module& root);

}  // namespace titan::fsdp
