// The parameters that one fully_shard call took, which communicate together, and what happens to them around forward
// and backward (after torch's _fsdp_param_group.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/collectives.h"
#include "parallel/fsdp/comm_context.h"
#include "parallel/fsdp/fsdp_param.h"
#include "parallel/fsdp/reduction.h"

namespace titan::fsdp {

class ParamGroup {
 public:
  ParamGroup(std::vector<std::unique_ptr<FsdpParam>> params, const FullyShardOptions& options);

  // The root's first forward decides: shared context, dtypes, the name of its modules below the root (for messages),
  // and whether this group belongs to the root.
  void lazy_init(CommContext& context, std::string name, bool is_root);

  // Gathers the parameters. unshard() starts, wait_for_unshard() ends it; both do nothing when they are there.
  // Collective.
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
  // At the end of backward: post_backward() if nothing called it, and ready for the next forward when this was the last
  // backward.
  void end_backward(bool is_last);
  // A forward of the root begins: none before it is waiting for its backward.
  void forget_forwards() { forward_uses_.clear(); }
  // After a forward or backward that threw: sharded, as before it, and without the gradients of that backward.
  void recover(bool after_backward);

  const std::vector<FsdpParam*>& params() const { return view_; }
  // Of its modules, below the root: "layers.3".
  const std::string& name() const { return name_; }
  // unshard() was called, and nobody has waited for it.
  bool has_to_be_waited_for() const { return !unsharded_ && (all_gather_ || gathers_from_self()); }
  // Memory for the gathered parameters is in use: they are there, or on their way.
  bool holds_gathered() const { return unsharded_ || all_gather_.has_value(); }
  // Throws InternalError when a module that uses these parameters is about to compute with shards.
  void check_gathered() const;
  // The sum of gradients over the shard group is divided by it: 1 sums, unset averages.
  void set_gradient_divide_factor(double factor) { divide_factor_ = factor; }
  // True: over all shard ranks, also where a group of neighbours was asked for before.
  void set_reshard_after_forward(bool reshard);
  void set_reshard_after_backward(bool reshard) { reshard_after_backward_ = reshard; }
  void set_requires_gradient_sync(bool sync) { reduce_grads_ = sync; }
  void set_requires_all_reduce(bool all_reduce) { all_reduce_grads_ = all_reduce; }
  // Gathered right after this group is, before it computes; an empty list restores the default order.
  void set_forward_prefetch(std::vector<ParamGroup*> groups) { forward_prefetch_ = std::move(groups); }
  void set_backward_prefetch(std::vector<ParamGroup*> groups) { backward_prefetch_ = std::move(groups); }

 private:
  enum class Phase { kIdle, kForward, kPreBackward, kPostBackward };

  dist::ProcessGroup& gather_group() const { return sharded_post_forward_ ? *post_forward_group_ : *shard_group_; }
  void init_reshard_after_forward(const ReshardAfterForward& rule);
  void reshard_after_forward();
  void drop_unused_all_gather();
  void prefetch_for_forward();
  void prefetch_for_backward();
  void start_reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads);
  bool gathers_from_self() const;
  void gather_from_self();
  std::string names() const;
  std::string where() const;  // the start of a message

  std::vector<std::unique_ptr<FsdpParam>> params_;
  std::vector<FsdpParam*> view_;
  std::string name_ = "a group not used yet";
  dist::DeviceMesh mesh_;
  dist::ProcessGroup* shard_group_;
  dist::ProcessGroup* replicate_group_ = nullptr;           // of a 2-D mesh with replicas
  std::shared_ptr<dist::ProcessGroup> post_forward_group_;  // with a group size for reshard_after_forward
  MixedPrecisionPolicy policy_;
  std::optional<bool> reshard_after_forward_;  // unset: the default, which depends on being the root
  bool reshard_after_backward_ = true;
  bool reduce_grads_ = true;
  bool all_reduce_grads_ = true;
  std::vector<ParamGroup*> forward_prefetch_;
  std::vector<ParamGroup*> backward_prefetch_;
  std::optional<double> divide_factor_;

  CommContext* context_ = nullptr;
  bool is_root_ = false;
  Phase phase_ = Phase::kIdle;
  bool unsharded_ = false;
  bool sharded_post_forward_ = false;  // the parameters are parts over post_forward_group_
  StreamEvent parts_are_there_;        // those parts, copied on the compute stream
  std::optional<AllGatherResult> all_gather_;
  // Where this group's forwards stand in the context's order, not yet used by a backward.
  std::vector<std::size_t> forward_uses_;
  at::Tensor partial_reduction_;  // reduce-scattered, not yet all-reduced over the replicas
};

}  // namespace titan::fsdp
