// Base class of everything that holds parameters. LibTorch's own Module has no forward hooks and cannot move between
// the meta device and a real one. Here operator() runs hooks around forward(), and every parameter is accessed through
// its slot, so that sharding, materialization and unsharding replace the tensor that the module's code reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/tensor/sharding.h"

namespace titan::dist {
class DTensor;
class ProcessGroup;
}  // namespace titan::dist

namespace titan::nn {

class Module;
struct GatheredFloat8;

using Tensors = std::vector<at::Tensor>;

// One parameter of one module. `tensor` points to the module's own member, which forward() uses. Once the module is
// sharded, it is the local shard between steps and the full parameter while the module computes.
struct Parameter {
  std::string name;  // within its module: "weight"
  at::Tensor* tensor;
  // The part of the full parameter that the local tensor is; nullopt if the parameter is not sharded.
  std::optional<dist::Sharding> sharding;
  // The component that owns and replaces `tensor`: "fsdp" after a fully_shard call. Empty if none: forward() sees the
  // local shard.
  std::string owner = {};
  // Group whose ranks use the same parameter on different tokens: backward leaves a term of the gradient on each rank,
  // and the component that takes it must sum the terms over the group, which outlives the module. Null if backward
  // leaves the full gradient.
  dist::ProcessGroup* gradient_terms = nullptr;
  // Set by a layer that can compute with this weight in float8; a component that gathers it may then do so in float8
  // (nn/float8/gathered_float8.h). Null otherwise.
  std::shared_ptr<GatheredFloat8> float8 = {};
  // Module::tie() makes several slots one parameter: `tied_to` is the first of them, which lists the others in `ties`.
  // Null if this slot is the first or the only one.
  Parameter* tied_to = nullptr;
  std::vector<Parameter*> ties = {};

  // Returns the first slot of this parameter: the same for all slots that are tied.
  Parameter& first_slot() { return tied_to ? *tied_to : *this; }
  // Makes this slot a parameter of its own; the others stay one.
  void untie();
  // Puts a tensor into this slot and all that are tied to it.
  void set(const at::Tensor& value, const std::optional<dist::Sharding>& new_sharding);
};

struct NamedParameter {
  std::string fqn;  // "layers.3.attention.wq.weight"
  Module* module;
  Parameter* parameter;

  at::Tensor& tensor() const { return *parameter->tensor; }
  // Returns the box of the local tensor; the full parameter if it is not sharded.
  dist::ShardSpec spec() const;
  // Returns the local tensor with its mesh and placements, detached, for full_tensor() and the like. Throws
  // InternalError if the parameter is not sharded, or is gathered at the moment.
  dist::DTensor dtensor() const;
};

// Replaces a full parameter, also one on the meta device, with this rank's part under `placements`, and records that in
// the slot. Tensor parallelism does this before fully_shard. No communication. Does nothing for a tied slot whose
// parameter was distributed so through another slot. Throws InternalError if it is sharded already, or tied and
// distributed otherwise; DistError for placements that do not fit.
void distribute(const NamedParameter& parameter, const dist::DeviceMesh& mesh, std::vector<dist::Placement> placements);

struct NamedModule {
  std::string fqn;
  Module* module;
};

class Module {
 public:
  using PreHook = std::function<void(Module&, Tensors& inputs)>;
  using PostHook = std::function<void(Module&, const Tensors& inputs, at::Tensor& output)>;
  using Forward = std::function<at::Tensor(const Tensors&)>;
  // Runs instead of the module's forward, and calls `forward` to run it: activation checkpointing.
  using ForwardWrapper = std::function<at::Tensor(const Forward& forward, const Tensors& inputs)>;

  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Calls the module: pre-hooks, forward, post-hooks. Calling forward() directly skips the hooks and with them the
  // sharding.
  at::Tensor operator()(Tensors inputs);
  template <typename... Rest>
  at::Tensor operator()(const at::Tensor& first, const Rest&... rest) {
    return (*this)(Tensors{first, rest...});
  }

  virtual at::Tensor forward(const Tensors& inputs) = 0;

  // Hooks run in the order added (a pre-hook added first runs first, a post-hook added first runs first).
  void add_pre_hook(PreHook hook) { pre_hooks_.push_back(std::move(hook)); }
  void add_post_hook(PostHook hook) { post_hooks_.push_back(std::move(hook)); }
  // Removes the hook of that kind that was added last, for a hook that observes some calls.
  void pop_pre_hook() { pre_hooks_.pop_back(); }
  void pop_post_hook() { post_hooks_.pop_back(); }
  // Adds a hook that runs instead of the post-hooks when a call of the module throws. It must not throw.
  void add_failure_hook(std::function<void()> hook) { failure_hooks_.push_back(std::move(hook)); }
  // A wrapper added later runs around those added before; hooks stay outside all of them.
  void add_forward_wrapper(ForwardWrapper wrapper) { forward_wrappers_.push_back(std::move(wrapper)); }

  // State that a wrapper keeps for this module, found again by its key ("fsdp").
  void attach(const std::string& key, std::shared_ptr<void> state) { attachments_[key] = std::move(state); }
  template <typename T>
  T* attached(const std::string& key) const {
    const auto found = attachments_.find(key);
    return found == attachments_.end() ? nullptr : static_cast<T*>(found->second.get());
  }

  // True if the module cannot be called (a list of blocks).
  virtual bool is_container() const { return false; }

  std::vector<Parameter>& own_parameters() { return parameters_; }
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }

  // Replaces the child `name` with `module`, in this module's code too, to give a layer another implementation. Call
  // before anything is attached to the old child. The new one has its own parameters, on meta, under the same names or
  // others. Throws InternalError if there is no such child, this module's code needs another type, or a parameter of
  // the old child is sharded or tied.
  void replace_child(const std::string& name, std::shared_ptr<Module> module);

  // Removes the child `name`, and sets the pointer in this module's code to null: another rank has that part. The names
  // of the others stay. Call before anything is attached to it. Throws InternalError if there is no such child or a
  // parameter of it is sharded. Ties to it are dissolved.
  void drop_child(const std::string& name);

  // Makes the slot `mine` another slot of the parameter `theirs`; both are FQNs below this module, such as
  // "output.weight" and "tok_embeddings.weight". From then on they hold one tensor, whatever replaces it. Call it when
  // the model is built, before anything is attached. Throws InternalError if there is no such parameter, the shapes
  // differ, or one is sharded.
  void tie(const std::string& mine, const std::string& theirs);

  // Returns the parameters in registration order: a module's own first, then its children's, depth first. The
  // optimizer, checkpoints and the random numbers use this order. A tied parameter is listed once, by the first of its
  // slots below this module, unless `remove_duplicate` is false (torch.nn.Module.named_parameters).
  std::vector<NamedParameter> named_parameters(bool remove_duplicate = true);
  std::vector<NamedModule> named_modules();  // this module first, with an empty name

  // Sets the name of this module's calls in profiles; with an empty name they are not in it.
  void set_name_in_profiles(std::string name) { name_in_profiles_ = std::move(name); }

  void train(bool training = true);
  bool training() const { return training_; }

 protected:
  // Declares a parameter: `member` becomes an empty float32 tensor of `shape` on the meta device that requires grad.
  // The member must live as long as the module.
  void param(std::string name, at::Tensor& member, at::IntArrayRef shape);
  // Declares a child that this module's code reaches through `member`, which must live as long as the module.
  template <typename M>
  void child(std::string name, std::shared_ptr<M>& member, std::shared_ptr<M> module) {
    member = module;
    add_child(std::move(name), std::move(module), [&member](const std::shared_ptr<Module>& other) {
      auto fitting = std::dynamic_pointer_cast<M>(other);
      if (fitting || !other) member = std::move(fitting);
      return member == other;
    });
  }
  // Makes the module's code use another child, or none for null. Returns false if the code cannot.
  using TakeChild = std::function<bool(const std::shared_ptr<Module>&)>;
  void add_child(std::string name, std::shared_ptr<Module> module, TakeChild take);

  // True if the module has post-hooks or forward wrappers, which expect the one tensor of forward(). A second way to
  // call a module, with several outputs, then has to go through operator(); otherwise it calls run_pre_hooks(), as
  // operator() does.
  bool has_post_hooks_or_wrappers() const { return !post_hooks_.empty() || !forward_wrappers_.empty(); }
  void run_pre_hooks(Tensors& inputs);

 private:
  std::size_t child_to_change(const std::string& name, const char* change) const;
  at::Tensor call(Tensors& inputs);
  // Runs forward() inside the first `num_wrappers` wrappers.
  at::Tensor wrapped_forward(const Tensors& inputs, std::size_t num_wrappers);

  std::vector<Parameter> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<TakeChild> take_child_;  // one per child
  std::vector<PreHook> pre_hooks_;
  std::vector<PostHook> post_hooks_;
  std::vector<std::function<void()>> failure_hooks_;
  std::vector<ForwardWrapper> forward_wrappers_;
  std::map<std::string, std::shared_ptr<void>> attachments_;
  std::string name_in_profiles_;
  bool training_ = true;
};

// Makes profiles show calls of the modules below `root` under their names, "layers.3.attention".
void show_names_in_profiles(Module& root);

// A list of blocks, named "0", "1", ...
class ModuleList : public Module {
 public:
  void append(std::shared_ptr<Module> module);
  std::size_t size() const { return children().size(); }
  Module& operator[](std::size_t i) const { return *children()[i].second; }
  bool is_container() const override { return true; }
  at::Tensor forward(const Tensors& inputs) override;
};

}  // namespace titan::nn
