// Policies that choose the modules of each fully_shard call, as FSDP1's auto_wrap_policy did.
//
//   fully_shard(model, wrap_by_size(model, 1'000'000), options);
//   fully_shard(model, wrap_by_name(model, {"layers.*.attention", "layers.*.feed_forward", "output"}), options);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

// The modules of one fully_shard call, and their names below the root in the same order.
struct WrapGroup {
  std::vector<nn::Module*> modules;
  std::vector<std::string> names;
};

// Each of these returns groups bottom-up, without the root, which takes the rest. They are pure: no module is changed,
// and every rank gets the same groups. Modules that share a tied parameter are one group: the policy's groups that have
// it are joined, with the modules that no group has.

// Returns a group for each module whose parameters are `min_parameters` or more, without those that modules below it
// take. Counts full parameters, a tied one once at its first slot. The rule of torch's size_based_auto_wrap_policy; a
// container, which cannot be called, is not a group. Throws InternalError if `min_parameters` is less than 1.
std::vector<WrapGroup> wrap_by_size(nn::Module& root, std::int64_t min_parameters);

// Returns a group for each module that has parameters and whose name one of `patterns` matches. A * stands for any
// characters but a dot: "layers.*.attention". Throws ConfigError for a pattern that names no module (with the nearest
// name), a container, or only modules without parameters.
std::vector<WrapGroup> wrap_by_name(nn::Module& root, const std::vector<std::string>& patterns);

// Applies fully_shard to the groups in order, then to `root` for the rest. Throws as fully_shard().
void fully_shard(nn::Module& root, const std::vector<WrapGroup>& groups, const FullyShardOptions& options);

}  // namespace titan::fsdp
