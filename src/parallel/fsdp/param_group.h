// The parameters of one fully_shard call, which communicate together, and their handling around forward and backward
// (after torch's _fsdp_param_group.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/collectives.h"
#include "parallel/fsdp/comm_context.h"
#include "parallel/fsdp/fsdp_param.h"
#include "parallel/fsdp/memory_observer.h"
#include "parallel/fsdp/reduction.h"

namespace titan::fsdp {

class ParamGroup {
 public:
  ParamGroup(std::vector<std::unique_ptr<FsdpParam>> params, const FullyShardOptions& options);

  // Called at the root's first forward, or by a gather before it. Sets the shared context, dtypes, the name of its
  // modules below the root (for messages), and whether this group belongs to the root.
  void lazy_init(CommContext& context, std::string name, bool is_root);

  // Gathers the parameters: unshard() starts it, wait_for_unshard() finishes it. Both do nothing if the parameters
  // are gathered. Collective.
  void unshard();
  void wait_for_unshard();
  // Frees the gathered parameters.
  void reshard();

  // Called by the hooks of the modules, see fsdp_state.h.
  void pre_forward();
  void post_forward();
  void pre_backward();
  // Takes the gradients, frees the parameters and starts the reduction. Does nothing when it ran already in this
  // backward.
  void post_backward();
  // Takes the gradients that backwards with gradient sync off have left, frees the parameters if they are freed after
  // backward, and starts the reduction.
  void reduce_kept_gradients();
  // Adds the gradients of the gathered parameters to those kept.
  void keep_gradients();
  // Runs post_backward() if nothing called it. After the last backward, makes the group ready for the next forward.
  void end_backward(bool is_last);
  // Call when a forward of the root begins: no earlier forward is waiting for its backward.
  void forget_forwards() { forward_uses_.clear(); }
  // Restores the state before a forward or backward that threw: sharded, without the gradients of that backward.
  void recover(bool after_backward);

  const std::vector<FsdpParam*>& params() const { return view_; }
  // The name of its modules below the root: "layers.3".
  const std::string& name() const { return name_; }
  // True if wait_for_unshard() is still to be called after unshard().
  bool has_to_be_waited_for() const { return !unsharded_ && (all_gather_ || is_unsharded_locally()); }
  // True if the gathered parameters take memory: they are there, or in flight.
  bool holds_gathered() const { return unsharded_ || all_gather_.has_value(); }
  // Throws InternalError if the parameters are sharded when a module that uses them is about to compute.
  void check_gathered() const;
  // Divides the sum of gradients over the mesh by `factor`: 1 sums, unset averages.
  void set_gradient_divide_factor(double factor) { divide_factor_ = factor; }
  // True reshards over all shard ranks, even if a group of neighbors was set before.
  void set_reshard_after_forward(bool reshard);
  void set_reshard_after_backward(bool reshard) { reshard_after_backward_ = reshard; }
  void set_requires_gradient_sync(bool sync) { reduce_grads_ = sync; }
  void set_requires_all_reduce(bool all_reduce) { all_reduce_grads_ = all_reduce; }
  // Sets the scales for the parameters that are gathered in float8 (float8_scales.h), float32 [parameters]; undefined:
  // every gather computes its own.
  void set_float8_scales(const at::Tensor& scales) { float8_scales_ = scales; }
  dist::ProcessGroup& shard_group() const { return *shard_group_; }
  void set_memory_observer(MemoryObserver* observer) { observer_ = observer; }
  // Sets the groups to gather right after this one, before it computes; an empty list restores the default order.
  void set_forward_prefetch(std::vector<ParamGroup*> groups) { forward_prefetch_ = std::move(groups); }
  void set_backward_prefetch(std::vector<ParamGroup*> groups) { backward_prefetch_ = std::move(groups); }

 private:
  void check_dtypes() const;
  enum class Phase { kIdle, kForward, kPreBackward, kPostBackward };

  dist::ProcessGroup& gather_group() const { return sharded_post_forward_ ? *post_forward_group_ : *shard_group_; }
  void init_reshard_after_forward(const ReshardAfterForward& rule);
  void reshard_after_forward();
  void drop_unused_all_gather();
  void tell_freed() const;
  void prefetch_for_forward();
  void prefetch_for_backward();
  void start_reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads);
  bool is_unsharded_locally() const;
  void gather_from_self();
  at::Tensor scales_to_gather();
  void keep_scales(const at::Tensor& scales);
  std::string names() const;
  std::string where() const;  // the start of a message

  std::vector<std::unique_ptr<FsdpParam>> params_;
  std::vector<FsdpParam*> view_;
  std::string name_ = "a group not used yet";
  dist::DeviceMesh mesh_;
  dist::ProcessGroup* shard_group_;
  dist::ProcessGroup* replicate_group_ = nullptr;           // null without replicas
  std::shared_ptr<dist::ProcessGroup> post_forward_group_;  // set by a group size for reshard_after_forward
  MixedPrecisionPolicy policy_;
  std::optional<bool> reshard_after_forward_;  // unset: the default, which depends on being the root
  bool reshard_after_backward_ = true;
  bool reduce_grads_ = true;
  bool all_reduce_grads_ = true;
  std::vector<ParamGroup*> forward_prefetch_;
  std::vector<ParamGroup*> backward_prefetch_;
  std::optional<double> divide_factor_;
  MemoryObserver* observer_ = nullptr;

  CommContext* context_ = nullptr;
  bool is_root_ = false;
  Phase phase_ = Phase::kIdle;
  bool unsharded_ = false;
  bool sharded_post_forward_ = false;  // the parameters are parts over post_forward_group_
  StreamEvent parts_are_there_;        // when those parts were copied on the compute stream
  std::optional<AllGatherResult> all_gather_;
  at::Tensor float8_scales_;  // computed before; undefined if every gather computes its own
  // The positions of this group's forwards in the context's order that no backward has used yet.
  std::vector<std::size_t> forward_uses_;
  at::Tensor partial_reduction_;  // reduce-scattered, not yet all-reduced over the replicas
};

}  // namespace titan::fsdp
