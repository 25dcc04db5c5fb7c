#include "nn/ops/weight_gradients.h"

#include <ATen/ATen.h>

#include <atomic>
#include <utility>

namespace titan::nn {
namespace {

// Atomic: autograd runs backward on threads of its own for a device.
std::atomic<WeightGradients*> current_list = nullptr;
std::atomic<bool> own_node = false;

}  // namespace

WeightGradients::Scope::Scope(WeightGradients& later) : outer_(current_list.exchange(&later)) {}
WeightGradients::Scope::~Scope() { current_list = outer_; }

WeightGradients* WeightGradients::current() { return current_list; }

void WeightGradients::add(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& grad) {
  products_.push_back({weight, x, grad});
}

void WeightGradients::run() {
  const at::NoGradGuard no_grad;
  for (auto& [weight, x, grad] : std::exchange(products_, {})) {
    auto product = grad.t().mm(x);
    at::Tensor& sum = weight.mutable_grad();
    if (sum.defined()) {
      sum.add_(product);
    } else {
      sum = std::move(product);
    }
  }
}

bool uses_own_linear_node() { return own_node; }
void use_own_linear_node(bool use) { own_node = use; }

}  // namespace titan::nn
