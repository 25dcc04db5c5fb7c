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

  at::Tensor output(const at::Tensor& x, const at::Tensor& weight) const {
    return float8_product(cast(x, kForward, Float8Scaling::kRows), cast(weight, kForward, Float8Scaling::kRows).t(),
                          x.scalar_type(), /*fast=*/true, options_.emulate);
  }

  at::Tensor of_input(const at::Tensor& grad, const at::Tensor& weight) const {
    const bool is_whole = options_.recipe == Float8Recipe::kRowwiseWithGwHp;
    const auto scaling = is_whole ? Float8Scaling::kTensor : Float8Scaling::kColumns;
    Float8Matrix by_columns = cast(weight, kForward, scaling);
    // at::_scaled_mm takes scales for rows of the one only with scales for columns of the other.
    if (is_whole) by_columns.scale = by_columns.scale.expand({1, weight.size(1)});
    return float8_product(cast(grad, gradient_type(), Float8Scaling::kRows), by_columns, grad.scalar_type(),
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

at::Tensor output_of(const at::Tensor& x, const at::Tensor& weight, const Float8Options& options) {
  const at::NoGradGuard no_grad;
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return Float8Matmuls(options).output(x.reshape({-1, weight.size(1)}), weight).view(sizes);
}

// The node of an existing output.
struct Float8Node : torch::autograd::Function<Float8Node> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                          const Float8Options& options, const KeptTensors& kept) {
    context->save_for_backward({x, weight});
    context->saved_data["recipe"] = static_cast<std::int64_t>(options.recipe);
    context->saved_data["emulate"] = options.emulate;
    return kept.tensors[0].detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the float8 linear layer");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const Float8Options options{.recipe = static_cast<Float8Recipe>(context->saved_data["recipe"].toInt()),
                                .emulate = context->saved_data["emulate"].toBool()};
    const Float8Matmuls matmuls(options);
    const auto grad = grad_outputs[0].reshape({-1, weight.size(0)});
    variable_list grads(4);  // the last two are for `options` and `kept`
    if (context->needs_input_grad(0)) grads[0] = matmuls.of_input(grad, weight).view(x.sizes());
    if (context->needs_input_grad(1)) grads[1] = matmuls.of_weight(grad, x.reshape({-1, weight.size(1)}));
    return grads;
  }
};

}  // namespace

at::Tensor apply_float8_linear(const at::Tensor& x, const at::Tensor& weight, const Float8Options& options) {
  const auto compute = [&] { return output_of(x, weight, options); };
  const auto with_node = [&](const KeptTensors& kept) {
    return at::Tensor(Float8Node::apply(x, weight, options, kept));
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
}

at::Tensor Float8Linear::forward(const Tensors& inputs) {
  return add_bias(apply_float8_linear(inputs[0], weight, options_));
}

}  // namespace titan::nn
