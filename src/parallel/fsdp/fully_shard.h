// fully_shard: per-parameter sharding with the semantics of torch.distributed.fsdp.fully_shard (FSDP2).
//
//   for (auto& block : blocks) fully_shard(*block, options);   // bottom-up
//   fully_shard(model, options);                               // the root last
//   fsdp::to_empty(model, device);                             // when the model was built on the meta device
//   model.init_weights(...);
//   // only now the optimizer, over the shards
//
// Call modules, not their forward(): the hooks gather and free the parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

class ParamGroup;

// Takes every parameter below `module` that no earlier call took, shards each over the mesh's shard axis along dim 0,
// and makes them communicate together. Not collective, except with a group size for reshard_after_forward. Throws
// InternalError for a container without forward, a module that is sharded already or whose parameters an enclosing
// module took, a scalar parameter, or a mesh that is not 1-D or 2-D.
void fully_shard(nn::Module& module, const FullyShardOptions& options);

// Shards several modules as one group, gathered before the first of them runs and freed after the last.
void fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options);

// True if fully_shard was applied to `module` itself: its forward and backward gather and free a group of parameters.
bool is_fully_sharded(const nn::Module& module);

// Gives every parameter on the meta device zeroed memory, stored as `dtype`, or as `frozen_dtype` if it is set and the
// parameter requires no gradient: shards on the device of their policy, others on `device`. Not collective.
void to_empty(nn::Module& module, at::Device device, at::ScalarType dtype = at::kFloat,
              std::optional<at::ScalarType> frozen_dtype = std::nullopt);

// The methods of PyTorch's FSDPModule, for every group at and below `module` if `recurse`, otherwise for its own.
// Only unshard() is collective.
//
// If off, backward leaves full gradients in the reduce dtype; the next backward with it on adds them and reduces.
void set_requires_gradient_sync(nn::Module& module, bool requires_sync, bool recurse = true);
// If off (2-D mesh), backward reduces over the shards only; the next one with it on reduces the sum over the
// replicas.
void set_requires_all_reduce(nn::Module& module, bool requires_all_reduce, bool recurse = true);
void set_reshard_after_forward(nn::Module& module, bool reshard, bool recurse = true);
void set_reshard_after_backward(nn::Module& module, bool reshard, bool recurse = true);
// Call on the root. False lets a backward end while its reductions run; use it for all but the last microbatch.
void set_is_last_backward(nn::Module& module, bool is_last);
// Reduces the gradients that backwards with gradient sync off have left, and those that were added to gathered
// parameters outside of a backward, of every group at and below `module`. The reductions may still run on return. For
// schedules that run backward in parts (pipelines). Collective over the mesh.
void reduce_gradients(nn::Module& module);
// Adds the gradients that were added to gathered parameters outside of a backward to those that are kept, in the reduce
// dtype.
void keep_gradients(nn::Module& module);
// Call on the root when all of them are reduced: waits for the reductions, as the end of a last backward does.
void end_reductions(nn::Module& module);
// Sets the modules to gather when `module` is gathered, instead of the default order. Throws InternalError for one
// that fully_shard was not applied to, or that has no parameters of its own.
void set_modules_to_forward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules);
void set_modules_to_backward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules);
// A gather that was started. wait() finishes it; forward and backward do that themselves when they need it.
class UnshardHandle {
 public:
  UnshardHandle() = default;
  explicit UnshardHandle(ParamGroup* group) : group_(group) {}
  void wait();

 private:
  ParamGroup* group_ = nullptr;
};

// Gathers the parameters of `module` itself until reshard(), for use outside forward. With `async` the caller must
// wait for the handle; otherwise they are there on return. They are read-only: other ranks may share the memory.
// Collective over the mesh.
UnshardHandle unshard(nn::Module& module, bool async = false);
// Frees the gathered parameters of `module`, with `recurse` also of every group below. Use it after forwards without
// gradients, which leave those groups gathered that do not reshard after forward.
void reshard(nn::Module& module, bool recurse = false);

// Divides the gradient sum over the ranks by `factor` in every group at and below `module`; the default averages.
void set_gradient_divide_factor(nn::Module& module, double factor);

}  // namespace titan::fsdp
