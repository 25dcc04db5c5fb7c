// Records the operators of a checkpointed module's forward, so that its recomputation need not run all of them. Linear
// and attention (nn/ops/kept_ops.h) ask the running trace; without one they just compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace titan::nn {

enum class OpKind { kLinear, kAttention };

struct Op {
  OpKind kind;
  at::IntArrayRef weight_shape = {};  // a linear layer's [out, in]
};

// Called once per operator, in forward order. Returns true to keep the tensors that the operator saves for backward,
// false to run it again.
using KeepPolicy = std::function<bool(const Op& op)>;

// The tensors that an operator saved for its gradient, and which of several kernels it used.
struct KeptTensors {
  std::vector<at::Tensor> tensors;
  std::int64_t kernel = 0;
};

// The operators of one forward of one module. Not thread-safe; one thread runs a forward or a recomputation.
class OpTrace {
 public:
  // A null policy keeps nothing.
  explicit OpTrace(KeepPolicy policy) : policy_(std::move(policy)) {}

  // Returns this thread's current trace, or null.
  static OpTrace* current();

  // While it lives, `trace` is this thread's current one.
  class Scope {
   public:
    explicit Scope(OpTrace& trace);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    OpTrace* outer_;
  };

  // An operator calls begin(), which says what to do, then keep() or take(), and end() with its output.
  enum class Action {
    kCompute,
    kComputeAndKeep,  // forward: compute, then keep() what the gradient needs
    kTake             // recomputation: take() what was kept, and compute nothing
  };
  // `keepable`: true if the operator can be restored from kept tensors; used in forward only. Throws InternalError in a
  // recomputation whose operators differ from the forward's.
  Action begin(const Op& op, bool keepable);
  void keep(KeptTensors kept);
  KeptTensors take();
  void end(const at::Tensor& output);

  // Hands over the kept tensors: between forward and recomputation the autograd node holds and frees them. Throws
  // InternalError if one was written to in place since keep().
  std::vector<at::Tensor> release_kept();
  // Begins a recomputation. `check`: compare shape, dtype and device of every output with the forward's. `verbose`: an
  // error lists all operators of both.
  void start_recomputation(std::vector<at::Tensor> kept, bool check, bool verbose);
  // Ends a recomputation. Throws InternalError if operators of the forward are missing and start_recomputation() said
  // to check.
  void finish_recomputation();

  // Records the module's own output in forward, compares it in recomputation.
  void module_output(const at::Tensor& output);

 private:
  struct Entry {
    OpKind kind;
    std::size_t num_kept = 0;
    std::int64_t kernel = 0;
    std::string output = {};  // "float32 [2, 3] on cpu"
  };
  void compare(const std::string& what, const std::string& expected, const std::string& found) const;
  [[noreturn]] void fail(const std::string& message) const;

  KeepPolicy policy_;
  std::vector<Entry> forward_;
  std::string module_output_;
  std::vector<at::Tensor> kept_;
  std::vector<std::uint32_t> kept_versions_;  // autograd's versions at keep()

  bool recomputing_ = false;
  bool check_ = true;
  bool verbose_ = false;
  std::size_t next_ = 0;       // index of an entry
  std::size_t next_kept_ = 0;  // index of a kept tensor
  std::vector<Entry> recomputed_;
};

}  // namespace titan::nn
