#include "nn/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "kernels/operators.h"
#include "nn/ops/meta_run.h"
#include "nn/ops/once_differentiable.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using OptionalVariable = std::optional<Variable>;  // a Function takes no undefined tensor

constexpr std::int64_t kFewestRows = 256;  // matmuls of fewer are slow
// Memory for the logits of a part, on a GPU with their copies.
constexpr std::int64_t kLogitsBytes = std::int64_t{64} << 20;
constexpr std::int64_t kLogitsBytesOfGpu = std::int64_t{1} << 30;
// Bytes per logit of the two float32 copies that ATen's operators hold: the log-probabilities, and a gradient.
constexpr std::int64_t kCopiesBytes = 8;

std::int64_t bytes_of_row(const LossShape& shape) {
  return shape.vocab * (static_cast<std::int64_t>(at::elementSize(shape.dtype)) + (shape.on_gpu ? kCopiesBytes : 0));
}

// Returns the number of rows whose logits are computed, and their gradients multiplied, by one matmul each. On CPU it
// is that of a part. On a GPU parts are only of the copies: each matmul more reads the weight and adds to its gradient
// in float32, which moves more bytes than all else. A single matmul needs no such sum, so it may have as many rows as
// take its memory. Else each has as many as take half of it.
std::int64_t rows_of_matmul(const LossShape& shape, std::int64_t rows_of_part) {
  if (!shape.on_gpu) return rows_of_part;
  const std::int64_t like_sum = 4 * shape.dim / static_cast<std::int64_t>(at::elementSize(shape.dtype));
  return shape.rows <= like_sum ? shape.rows : std::min(shape.rows, std::max(rows_of_part, like_sum / 2));
}

// Returns the bytes that logits, their copies and the sum of the weight's gradient take at once.
std::int64_t bytes_in_parts(const LossShape& shape, std::int64_t rows_of_part) {
  const std::int64_t of_logits = shape.vocab * static_cast<std::int64_t>(at::elementSize(shape.dtype));
  const std::int64_t at_once = rows_of_matmul(shape, rows_of_part);
  // The float32 sum takes memory in addition to the gradient of another dtype.
  const bool has_sum = shape.dtype != at::kFloat && at_once < shape.rows;
  return at_once * of_logits + rows_of_part * (bytes_of_row(shape) - of_logits) +
         (has_sum ? 4 * shape.vocab * shape.dim : 0);
}

// Returns the loss of each row from the largest of its logits and the sum of e^(logit - largest): `stats` [rows, 2].
at::Tensor each_of(const at::Tensor& stats, const at::Tensor& logits, const at::Tensor& labels) {
  const auto flat = labels.flatten();
  const auto of_label = logits.flatten(0, -2).gather(1, flat.clamp_min(0).unsqueeze(1)).squeeze(1).to(at::kDouble);
  const auto largest = stats.select(1, 0).to(at::kDouble), sum = stats.select(1, 1).to(at::kDouble);
  return (sum.log() + (largest - of_label)).masked_fill_(flat.eq(kIgnoreIndex), 0);
}

// Losses of rows with the full vocabulary, by this program's kernels. Without a kernel nothing is defined.
class WholeRows : public RowLosses {
 public:
  Result forward(const at::Tensor& logits, const at::Tensor& labels, bool wants_each) const override {
    auto [loss, stats] = ops::cross_entropy(logits, labels, kIgnoreIndex);
    auto each = wants_each && loss.defined() ? each_of(stats, logits, labels) : at::Tensor();
    return {std::move(loss), std::move(stats), std::move(each)};
  }
  void backward(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                const at::Tensor& stats, const at::Tensor& grad) const override {
    TITAN_CHECK(ops::cross_entropy_backward(loss_grad, logits, labels, stats, grad),
                "the kernels of a forward are gone in its backward");
  }
};

const WholeRows kWholeRows;

// The same by ATen's operators: the values of composed::cross_entropy_sum(), row by row. `stats` are the
// log-probabilities.
class AtenRows : public RowLosses {
 public:
  Result forward(const at::Tensor& logits, const at::Tensor& labels, bool wants_each) const override {
    auto log_probs = at::_log_softmax(logits.to(at::kFloat), -1, /*half_to_float=*/false);
    const auto reduced = [&](std::int64_t reduction) {
      return std::get<0>(at::nll_loss_forward(log_probs, labels, /*weight=*/{}, reduction, kIgnoreIndex));
    };
    auto loss = reduced(at::Reduction::Sum);
    auto each = wants_each ? reduced(at::Reduction::None).to(at::kDouble) : at::Tensor();
    return {std::move(loss), std::move(log_probs), std::move(each)};
  }
  void backward(const at::Tensor& loss_grad, const at::Tensor& /*logits*/, const at::Tensor& labels,
                const at::Tensor& stats, const at::Tensor& grad) const override {
    // ATen does not read total_weight when losses are summed.
    const auto of_log_probs = at::nll_loss_backward(loss_grad, stats, labels, /*weight=*/{}, at::Reduction::Sum,
                                                    kIgnoreIndex, /*total_weight=*/loss_grad);
    grad.copy_(at::_log_softmax_backward_data(of_log_probs, stats, -1, at::kFloat));
  }
};

const AtenRows kAtenRows;

bool is_on_gpu(const at::Tensor& x) { return x.is_meta() ? meta_run::stands_for_gpu() : !x.is_cpu(); }

LossShape shape_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels) {
  return {labels.numel(), x.size(-1), weight.size(0), x.scalar_type(), is_on_gpu(x)};
}

// Stores the address of `losses`, which must outlive the graph, in the graph's node.
void keep(AutogradContext* context, const RowLosses& losses) {
  context->saved_data["losses"] = reinterpret_cast<std::int64_t>(&losses);
}
const RowLosses& kept(AutogradContext* context) {
  return *reinterpret_cast<const RowLosses*>(context->saved_data["losses"].toInt());
}

// Computes the losses without a graph, each counted as often as its weight says.
RowLosses::Result losses_of(const RowLosses& losses, const at::Tensor& logits, const at::Tensor& labels,
                            const at::Tensor& row_weights) {
  const at::NoGradGuard no_grad;
  RowLosses::Result out = losses.forward(logits, labels, /*wants_each=*/row_weights.defined());
  if (out.each.defined()) out.loss = (out.each * row_weights.flatten()).sum().to(at::kFloat);
  return out;
}

void weigh_gradient(const at::Tensor& grad, const at::Tensor& row_weights) {
  if (row_weights.defined()) grad.mul_(row_weights.view(grad.sizes().slice(0, grad.dim() - 1)).unsqueeze(-1));
}

// Adds a node for losses that are computed already: only then is it known that there is a kernel.
struct CrossEntropySum : torch::autograd::Function<CrossEntropySum> {
  static Variable forward(AutogradContext* context, const Variable& logits, const Variable& labels,
                          const OptionalVariable& row_weights, const RowLosses* losses, const RowLosses::Result& out) {
    context->save_for_backward({logits, labels, out.stats, row_weights.value_or(Variable())});
    keep(context, *losses);
    return out.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the cross entropy");
    const auto saved = context->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor grad = is_last_holder(logits) ? logits.detach() : at::empty_like(logits);
    kept(context).backward(grad_outputs[0], logits, saved[1], saved[2], grad);
    weigh_gradient(grad, saved[3]);
    return {grad, {}, {}, {}, {}};
  }

 private:
  // True if the logits buffer may be overwritten: only this node (which then releases it) and its caller hold the
  // tensor, no other tensor has the memory, and backward runs once.
  static bool is_last_holder(const at::Tensor& logits) {
    return !torch::autograd::get_current_graph_task_keep_graph() && logits.use_count() == 2 &&
           logits.storage().use_count() == 1;
  }
};

// Sums the gradients of rows that are added some at a time.
class ChunkGradients {
 public:
  // `of_weight`: false for a frozen weight, which needs none.
  ChunkGradients(const at::Tensor& x, const at::Tensor& weight, bool of_weight)
      : x_(at::empty_like(x)), weight_(weight), of_weight_(of_weight) {}

  // Adds the rows from `begin` on, from their x and the gradient of their logits.
  void add(std::int64_t begin, const at::Tensor& x, const at::Tensor& logits_grad) {
    auto rows = x_.narrow(0, begin, x.size(0));
    at::mm_out(rows, logits_grad, weight_);
    if (!of_weight_) return;
    if (!weight_grad_.defined()) {
      weight_grad_ = at::mm(logits_grad.t(), x);
    } else if (x.scalar_type() == at::kFloat) {
      weight_grad_.addmm_(logits_grad.t(), x);
    } else {
      weight_grad_ = weight_grad_.to(at::kFloat).add_(at::mm(logits_grad.t(), x));
    }
  }

  // Returns the gradients of x [rows, D] and of the weight, undefined if it is frozen; in float32 if it is a sum.
  std::tuple<at::Tensor, at::Tensor> take() { return {std::move(x_), std::move(weight_grad_)}; }

 private:
  at::Tensor x_, weight_, weight_grad_;
  bool of_weight_;
};

// `wants_grad` is a parameter because autograd is off inside a Function's forward, so that it cannot be asked there.
struct LinearCrossEntropySum : torch::autograd::Function<LinearCrossEntropySum> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight, const Variable& labels,
                          const OptionalVariable& row_weights, std::int64_t rows, bool wants_grad,
                          const RowLosses* losses) {
    const auto all_x = x.flatten(0, -2);
    const Rows all{labels.flatten(), row_weights ? row_weights->flatten() : at::Tensor()};
    std::optional<ChunkGradients> grads;
    if (wants_grad) grads.emplace(all_x, weight, weight.requires_grad());
    auto loss = at::zeros({}, x.options().dtype(at::kDouble));
    const auto num_rows = all_x.size(0),
               at_once = wants_grad ? rows_of_matmul(shape_of(x, weight, labels), rows) : rows;
    for (std::int64_t begin = 0; begin < num_rows; begin += at_once) {
      const auto count = std::min(at_once, num_rows - begin);
      const auto own_x = all_x.narrow(0, begin, count), logits = at::linear(own_x, weight);
      add_losses(*losses, logits, all.narrow(begin, count), rows, wants_grad, loss);
      if (grads) grads->add(begin, own_x, logits);
    }
    if (grads) {
      const auto [x_grad, weight_grad] = grads->take();
      context->save_for_backward({x_grad.view_as(x), weight_grad});
      context->saved_data["dtype"] = static_cast<std::int64_t>(weight.scalar_type());
    }
    return loss.to(at::kFloat);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the cross entropy of a linear layer");
    const auto saved = context->get_saved_variables();
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    const auto of_weight = saved[1].defined() ? scaled(saved[1], grad_outputs[0]).to(dtype) : at::Tensor();
    return {scaled(saved[0], grad_outputs[0]), of_weight, {}, {}, {}, {}, {}};
  }

 private:
  // The labels and weights of some rows.
  struct Rows {
    at::Tensor labels, weights;
    Rows narrow(std::int64_t begin, std::int64_t count) const {
      return {labels.narrow(0, begin, count), weights.defined() ? weights.narrow(0, begin, count) : weights};
    }
  };

  // Adds the losses of all rows of the logits, and replaces these by their gradients if they are wanted, some rows at a
  // time.
  static void add_losses(const RowLosses& losses, const at::Tensor& logits, const Rows& all, std::int64_t rows,
                         bool wants_grad, at::Tensor& loss) {
    for (std::int64_t begin = 0; begin < logits.size(0); begin += rows) {
      const auto count = std::min(rows, logits.size(0) - begin);
      const auto part_logits = logits.narrow(0, begin, count);
      const Rows own = all.narrow(begin, count);
      const auto part = losses_of(losses, part_logits, own.labels, own.weights);
      loss += part.loss;
      if (!wants_grad) continue;
      losses.backward(at::ones_like(part.loss), part_logits, own.labels, part.stats, /*grad=*/part_logits);
      weigh_gradient(part_logits, own.weights);
    }
  }

  // Scales in place if backward runs only once.
  static at::Tensor scaled(at::Tensor grad, const at::Tensor& factor) {
    if (torch::autograd::get_current_graph_task_keep_graph()) return grad * factor;
    return grad.detach().mul_(factor);
  }
};

bool is_for_own_way(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16; }

bool takes_in_parts(const at::Tensor& x, const at::Tensor& weight) {
  return kernels::uses_fused_kernels(x.device().type()) && is_for_own_way(x.scalar_type()) &&
         weight.scalar_type() == x.scalar_type() && x.dim() > 1 && x.numel() > 0;
}

OptionalVariable optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalVariable(tensor) : std::nullopt;
}

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& row_weights) {
  if (is_on_gpu(logits)) return composed::cross_entropy_sum(logits, labels, row_weights);
  const auto own_logits = logits.contiguous(), own_labels = labels.contiguous();
  const auto losses = losses_of(kWholeRows, own_logits, own_labels, row_weights);
  if (!losses.loss.defined()) return composed::cross_entropy_sum(logits, labels, row_weights);
  return CrossEntropySum::apply(own_logits, own_labels, optional(row_weights), &kWholeRows, losses);
}

at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    const at::Tensor& row_weights) {
  if (!takes_in_parts(x, weight)) return cross_entropy_sum(at::linear(x, weight), labels, row_weights);
  if (!is_on_gpu(x)) return linear_cross_entropy_sum(x, weight, labels, kWholeRows, row_weights);
  if (rows_of_logits(shape_of(x, weight, labels)) == labels.numel())
    return composed::cross_entropy_sum(at::linear(x, weight), labels, row_weights);
  return linear_cross_entropy_sum(x, weight, labels, kAtenRows, row_weights);
}

at::Tensor linear_cross_entropy_sum(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                    const RowLosses& losses, const at::Tensor& row_weights) {
  const auto shape = shape_of(x, weight, labels);
  const auto rows = takes_in_parts(x, weight) ? rows_of_logits(shape) : shape.rows;
  if (rows == shape.rows) {
    const auto logits = at::linear(x, weight).contiguous(), own_labels = labels.contiguous();
    return CrossEntropySum::apply(logits, own_labels, optional(row_weights), &losses,
                                  losses_of(losses, logits, own_labels, row_weights));
  }
  return detail::linear_cross_entropy_sum_in_parts(x.contiguous(), weight, labels.contiguous(), rows, losses,
                                                   row_weights);
}

at::Tensor detail::linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& labels, std::int64_t rows) {
  return linear_cross_entropy_sum_in_parts(x, weight, labels, rows, kWholeRows);
}

at::Tensor detail::linear_cross_entropy_sum_in_parts(const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& labels, std::int64_t rows,
                                                     const RowLosses& losses, const at::Tensor& row_weights) {
  const bool wants_grad = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  return LinearCrossEntropySum::apply(x, weight, labels, optional(row_weights), rows, wants_grad, &losses);
}

at::Tensor row_weights_of(const at::Tensor& labels_of_sample, at::Device device) {
  if (!labels_of_sample.defined()) return {};
  return labels_of_sample.to(device, at::kFloat, /*non_blocking=*/true).reciprocal();
}

const RowLosses& detail::aten_rows() { return kAtenRows; }

std::int64_t rows_of_logits(const LossShape& shape) {
  const auto row_bytes = bytes_of_row(shape);
  const auto most = std::max(kFewestRows, (shape.on_gpu ? kLogitsBytesOfGpu : kLogitsBytes) / row_bytes);
  if (most >= shape.rows) return shape.rows;
  const auto parts = (shape.rows + most - 1) / most;
  const auto rows = (shape.rows + parts - 1) / parts;
  return bytes_in_parts(shape, rows) < shape.rows * row_bytes ? rows : shape.rows;
}

at::Tensor composed::cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels,
                                       const at::Tensor& row_weights) {
  const auto reduced = [&](std::int64_t reduction) {
    return at::cross_entropy_loss(logits.flatten(0, -2).to(at::kFloat), labels.flatten(), /*weight=*/{}, reduction,
                                  kIgnoreIndex);
  };
  if (!row_weights.defined()) return reduced(at::Reduction::Sum);
  return (reduced(at::Reduction::None) * row_weights.flatten()).sum();
}

}  // namespace titan::nn
