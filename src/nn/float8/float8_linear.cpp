#include "nn/float8/float8_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "base/error.h"
#include "nn/float8/float8_matrix.h"
#include "nn/ops/once_differentiable.h"
#include "nn/ops/traced_op.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kForward = at::kFloat8_e4m3fn;

// The three matmuls of a linear layer by one recipe. x [rows, in], weight [out, in], grad [rows, out].
class Float8Matmuls {
 public:
  explicit Float8Matmuls(const Float8Options& options) : options_(options) {}

  // Returns the weight for output().
  Float8Matrix by_rows(const at::Tensor& weight) const { return cast(weight, kForward, Float8Scaling::kRows); }

  // Returns the weight for of_input().
  Float8Matrix by_columns(const at::Tensor& weight) const {
    const bool is_whole = options_.recipe == Float8Recipe::kRowwiseWithGwHp;
    Float8Matrix found = cast(weight, kForward, is_whole ? Float8Scaling::kTensor : Float8Scaling::kColumns);
    // at::_scaled_mm takes scales for rows of the one only with scales for columns of the other.
    if (is_whole) found.scale = found.scale.expand({1, weight.size(1)});
    return found;
  }

  at::Tensor output(const at::Tensor& x, const Float8Matrix& weight) const {
    return float8_product(cast(x, kForward, Float8Scaling::kRows), weight.t(), x.scalar_type(), /*fast=*/true,
                          options_.emulate);
  }

  at::Tensor of_input(const at::Tensor& grad, const Float8Matrix& weight) const {
    return float8_product(cast(grad, gradient_type(), Float8Scaling::kRows), weight, grad.scalar_type(),
                          /*fast=*/false, options_.emulate);
  }

  at::Tensor of_weight(const at::Tensor& grad, const at::Tensor& x) const {
    if (options_.recipe == Float8Recipe::kRowwiseWithGwHp) return grad.t().mm(x);
    return float8_product(cast(grad, gradient_type(), Float8Scaling::kColumns).t(),
                          cast(x, kForward, Float8Scaling::kColumns), grad.scalar_type(), /*fast=*/false,
                          options_.emulate);
  }

 private:
  bool is_tensorwise() const { return options_.recipe == Float8Recipe::kTensorwise; }
  at::ScalarType gradient_type() const { return is_tensorwise() ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn; }
  Float8Matrix cast(const at::Tensor& matrix, at::ScalarType dtype, Float8Scaling scaling) const {
    return to_float8(matrix, dtype, is_tensorwise() ? Float8Scaling::kTensor : scaling,
                     /*power_of_two=*/!is_tensorwise());
  }

  const Float8Options& options_;
};

at::Tensor output_of(const at::Tensor& x, const at::Tensor& weight, const Float8Options& options,
                     const Float8Matrix& gathered) {
  const at::NoGradGuard no_grad;
  const Float8Matmuls matmuls(options);
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return matmuls.output(x.reshape({-1, weight.size(1)}), gathered.values.defined() ? gathered : matmuls.by_rows(weight))
      .view(sizes);
}

// The node of an existing output.
struct Float8Node : torch::autograd::Function<Float8Node> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                          const Float8Options& options, const Float8Matrix& gathered, const KeptTensors& kept) {
    const bool is_gathered = gathered.values.defined();
    context->save_for_backward({x, is_gathered ? at::Tensor() : weight, gathered.values, gathered.scale});
    context->saved_data["recipe"] = static_cast<std::int64_t>(options.recipe);
    context->saved_data["emulate"] = options.emulate;
    return kept.tensors[0].detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the float8 linear layer");
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const bool is_gathered = saved[2].defined();
    const Float8Options options{.recipe = static_cast<Float8Recipe>(context->saved_data["recipe"].toInt()),
                                .emulate = context->saved_data["emulate"].toBool()};
    const Float8Matmuls matmuls(options);
    const auto grad = grad_outputs[0].reshape({-1, grad_outputs[0].size(-1)});
    variable_list grads(5);  // the last three are for what is not a tensor of the graph
    if (context->needs_input_grad(0)) {
      const Float8Matrix weight = is_gathered ? Float8Matrix{saved[2], saved[3]} : matmuls.by_columns(saved[1]);
      grads[0] = matmuls.of_input(grad, weight).view(x.sizes());
    }
    if (context->needs_input_grad(1)) grads[1] = matmuls.of_weight(grad, x.reshape({-1, x.size(-1)}));
    return grads;
  }
};

}  // namespace

at::Tensor apply_float8_linear(const at::Tensor& x, const at::Tensor& weight, const Float8Options& options,
                               const Float8Matrix& gathered) {
  const auto compute = [&] { return output_of(x, weight, options, gathered); };
  const auto with_node = [&](const KeptTensors& kept) {
    return at::Tensor(Float8Node::apply(x, weight, options, gathered, kept));
  };
  const auto compute_with_node = [&] {
    return at::GradMode::is_enabled() ? with_node(KeptTensors{{compute()}}) : compute();
  };
  auto* trace = OpTrace::current();
  if (!trace) return compute_with_node();
  return run_traced(
      *trace, {OpKind::kLinear, weight.sizes()}, /*keepable=*/true, compute_with_node,
      [&] { return KeptTensors{{compute()}}; }, with_node);
}

Float8Linear::Float8Linear(std::int64_t in_features, std::int64_t out_features, bool has_bias, Float8Options options)
    : Linear(in_features, out_features, has_bias), options_(options) {
  TITAN_CHECK(in_features % 16 == 0 && out_features % 16 == 0,
              "a float8 linear layer from " + std::to_string(in_features) + " to " + std::to_string(out_features));
  if (!options_.gathers_in_float8) return;
  TITAN_CHECK(options_.recipe == Float8Recipe::kTensorwise, "only the tensorwise recipe gathers weights in float8");
  gathered_ = std::make_shared<GatheredFloat8>();
  own_parameters().front().float8 = gathered_;  // of the weight
}

at::Tensor Float8Linear::forward(const Tensors& inputs) {
  return add_bias(apply_float8_linear(inputs[0], weight, options_, gathered_ ? gathered_->matrix : Float8Matrix{}));
}

}  // namespace titan::nn
