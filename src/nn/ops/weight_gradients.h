// Gradients of weights that are computed later than the rest of a backward pass. The gradient of a linear layer's input
// is what the stage before it in a pipeline waits for; that of its weight can wait (zero-bubble schedules, Qi et al.,
// arXiv:2401.10241).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace titan::nn {

// The gradients that one backward pass has left to compute. Not thread-safe.
class WeightGradients {
 public:
  // While it lives, the backward of apply_linear() adds to `later` instead of computing its weight's gradient, on
  // whichever thread autograd runs it. Requires that the forward ran while uses_own_linear_node() was true.
  class Scope {
   public:
    explicit Scope(WeightGradients& later);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WeightGradients* outer_;
  };
  // Returns the list of the backward that runs now; null if weights get their gradients at once.
  static WeightGradients* current();

  // Adds grad^T x to the gradient of `weight`, a leaf, when run() is called. x [rows, in], grad [rows, out].
  void add(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& grad);
  // Computes them, and forgets them.
  void run();

 private:
  struct Product {
    at::Tensor weight, x, grad;
  };
  std::vector<Product> products_;
};

// True if apply_linear() makes a node of its own, which can leave its weight's gradient for later. Off by default:
// ATen's node computes the same. Process-wide.
bool uses_own_linear_node();
void use_own_linear_node(bool use);

}  // namespace titan::nn
