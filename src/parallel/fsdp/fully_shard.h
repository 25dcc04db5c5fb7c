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

#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/policies.h"

namespace titan::fsdp {

class ParamGroup;

// Takes every parameter below `module` that no earlier call took, shards each over the mesh's shard axis along dim 0,
// and makes them communicate together. Not collective. Throws InternalError on a container without forward, a module
// that is sharded already or whose parameters an enclosing module took, a scalar parameter, or a mesh that is not 1-D
// or 2-D.
void fully_shard(nn::Module& module, const FullyShardOptions& options);

// Several modules as one group, gathered before the first of them runs and freed after the last.
void fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options);

// Whether fully_shard was applied to `module` itself: its forward and backward gather and free a group of parameters.
bool is_fully_sharded(const nn::Module& module);

// Gives every parameter on the meta device zeroed memory, stored as `dtype`: shards where their policy wants them,
// others on `device`. Not collective.
void to_empty(nn::Module& module, at::Device device, at::ScalarType dtype = at::kFloat);

// What FSDPModule's methods do in PyTorch, for every group at and below `module` where `recurse`, else for its own.
// None is collective but unshard().
//
// Off: backward leaves whole gradients, in the reduce dtype, which the next backward with it on adds in and reduces.
void set_requires_gradient_sync(nn::Module& module, bool requires_sync, bool recurse = true);
// Off (2-D mesh): backward reduces over the shards only; the next one with it on reduces the sum over the replicas.
void set_requires_all_reduce(nn::Module& module, bool requires_all_reduce, bool recurse = true);
void set_reshard_after_forward(nn::Module& module, bool reshard, bool recurse = true);
void set_reshard_after_backward(nn::Module& module, bool reshard, bool recurse = true);
// On the root: false lets a backward end while its reductions run; set it for all but the last microbatch.
void set_is_last_backward(nn::Module& module, bool is_last);
// Which modules to gather when `module` is gathered, instead of the default order. Throws InternalError for one that
// fully_shard was not applied to, or that has no parameters of its own.
void set_modules_to_forward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules);
void set_modules_to_backward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules);
// A gather that was started. wait() ends it; forward and backward do that themselves where they need it.
class UnshardHandle {
 public:
  UnshardHandle() = default;
  explicit UnshardHandle(ParamGroup* group) : group_(group) {}
  void wait();

 private:
  ParamGroup* group_ = nullptr;
};

// Gathers the parameters of `module` itself until reshard(), for use outside forward. With `async` the caller waits for
// the handle; else they are there on return. They are to be read only: other ranks may have the same memory. Collective
// over the mesh.
UnshardHandle unshard(nn::Module& module, bool async = false);
// With `recurse` also every group below: after forwards without gradients, which leave the groups gathered that are not
// to be resharded after forward.
void reshard(nn::Module& module, bool recurse = false);

// The gradient sum over the ranks is divided by `factor` in every group at and below `module`; the default averages.
void set_gradient_divide_factor(nn::Module& module, double factor);

}  // namespace titan::fsdp
