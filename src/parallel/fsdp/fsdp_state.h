// The hooks that fully_shard puts around its modules (after torch's _fsdp_state.py):
//
//   pre-forward      unshard, cast floating point inputs, put a node on the inputs that fires when their gradients are
//                    ready
//   post-forward     reshard, put a hook on the output that fires when its gradient is ready
//   pre-backward     (that hook) unshard, prefetch the group before this one
//   post-backward    (that node) take gradients, reshard, start the reduction
//   end of backward  (queued by the first pre-backward) post-backward if no input had a gradient; wait for the last
//                    reduction
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/fsdp/param_group.h"

namespace titan::fsdp {

class FsdpState : public std::enable_shared_from_this<FsdpState> {
 public:
  static constexpr const char* kKey = "fsdp";
  static FsdpState* of(const nn::Module& module) { return module.attached<FsdpState>(kKey); }

  // `group` is null if inner fully_shard calls left no parameter of the modules.
  FsdpState(std::vector<nn::Module*> modules, std::unique_ptr<ParamGroup> group, FullyShardOptions options);

  void install_hooks();
  ParamGroup* group() const { return group_.get(); }
  // Starts to gather the group outside forward, even before the root's first one; wait_for_unshard() finishes it.
  // Collective.
  void unshard();
  // Ends the backwards of a step whose gradients were reduced by ParamGroup::reduce_kept_gradients(). Root only.
  void end_reductions();
  // Applies to the full model, even if called on a module below the root.
  void set_is_last_backward(bool is_last) { (root_ ? root_ : this)->is_last_backward_ = is_last; }

  // Returns all states at and below `module`, in module order, each once.
  static std::vector<FsdpState*> all_below(nn::Module& module);

 private:
  void pre_forward(nn::Module& module, nn::Tensors& inputs);
  void post_forward(nn::Module& module, at::Tensor& output);
  void fail_forward() noexcept;
  void begin_forward();
  void end_forward();
  void recover(bool after_backward);
  void warn_of_modules_not_run();
  void become_root(nn::Module& module);
  void init_context();
  std::string name_below(const std::vector<nn::NamedModule>& root_modules) const;
  void check_ranks_agree_below(nn::Module& root) const;
  void register_post_backward(nn::Tensors& inputs);
  void pre_backward();
  void root_post_backward();

  std::vector<nn::Module*> modules_;
  std::unique_ptr<ParamGroup> group_;
  FullyShardOptions options_;

  // Set by the root's first forward.
  std::shared_ptr<CommContext> context_;
  FsdpState* root_ = nullptr;
  std::vector<FsdpState*> states_;   // root only: every state at and below it
  bool is_last_backward_ = true;     // root only: wait for reductions at the end of this backward
  bool owes_recovery_ = false;       // root only: a forward has thrown, and recover() has not succeeded since
  bool callback_queued_ = false;     // root only: the end of this backward is announced to autograd
  std::vector<nn::Module*> to_run_;  // to run in this forward; a group acts before the first and after the last
};

}  // namespace titan::fsdp
