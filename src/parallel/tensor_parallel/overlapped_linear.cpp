#include "parallel/tensor_parallel/overlapped_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <utility>
#include <vector>

#include "nn/ops/op_trace.h"
#include "parallel/group_in_graph.h"

namespace titan::tp {
namespace {

using nn::OpTrace;
using parallel::group_in, parallel::keep_group;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Splits the sequence into parts: tokens are [B, R, num_parts, n], one part is [R, B, n].
class Parts {
 public:
  // `local_tokens`: T / R.
  Parts(std::int64_t local_tokens, const dist::ProcessGroup& group) : ranks_(group.size()) {
    while (local_tokens % count_ != 0) count_ /= 2;
    tokens_ = local_tokens / count_;
  }
  std::int64_t count() const { return count_; }
  std::int64_t local_tokens() const { return tokens_ * count_; }

  // Part `index` of this rank's x [B, T / R, D]: [B, n, D].
  at::Tensor of_own(const at::Tensor& x, std::int64_t index) const { return x.narrow(1, index * tokens_, tokens_); }
  // Part `index` of a full x [B, T, D]: [R, B, n, D], a view.
  at::Tensor of_whole(const at::Tensor& x, std::int64_t index) const {
    return x.view({x.size(0), ranks_, count_, tokens_, x.size(2)}).select(2, index).transpose(0, 1);
  }
  std::vector<std::int64_t> shape_of_part(std::int64_t rows, std::int64_t features) const {
    return {ranks_, rows, tokens_, features};
  }
  at::Tensor empty_whole(const at::Tensor& like, std::int64_t features) const {
    return at::empty({like.size(0), ranks_ * local_tokens(), features}, like.options());
  }

 private:
  std::int64_t ranks_;
  std::int64_t count_ = 4;
  std::int64_t tokens_ = 0;  // per rank and part
};

at::Tensor as_matrix(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Computes part [R, B, n, K] times matrix [K, N] into `target` [R, B, n, N]; both may be views. A GPU's batched matmul
// reads and writes rows of any stride between the ranks' tokens, so that one sequence needs no copies.
void multiply_into(const at::Tensor& target, const at::Tensor& part, const at::Tensor& matrix) {
  if (part.size(1) == 1 && !part.is_cpu()) {
    auto rows = target.select(1, 0);
    at::bmm_out(rows, part.select(1, 0), matrix.expand({part.size(0), -1, -1}));
  } else if (target.is_contiguous()) {
    auto rows = target.view({-1, target.size(-1)});
    at::mm_out(rows, as_matrix(part), matrix);
  } else {
    target.copy_(as_matrix(part).mm(matrix).view(target.sizes()));
  }
}

// All-gathers x [B, T / R, K] in parts.
class Gathering {
 public:
  Gathering(const at::Tensor& x, dist::ProcessGroup& group) : parts_(x.size(1), group), x_(x) {
    for (std::int64_t i = 0; i < parts_.count(); ++i) {
      const auto own = parts_.of_own(x, i);
      sent_.push_back(group.exchange_buffer(own.numel(), own.options()));
      sent_[i].view(own.sizes()).copy_(own);
      gathered_.push_back(at::empty(parts_.shape_of_part(x.size(0), x.size(2)), x.options()));
      works_.push_back(group.all_gather(gathered_[i], sent_[i]));
    }
  }

  // Returns the full x [B, T, K]. Calls `use` with the number and data, [R, B, n, K], of each part as it arrives.
  template <typename Use>
  at::Tensor wait(Use use) {
    auto whole = parts_.empty_whole(x_, x_.size(2));
    for (std::int64_t i = 0; i < parts_.count(); ++i) {
      works_[i].wait();
      use(i, gathered_[i]);
      parts_.of_whole(whole, i).copy_(gathered_[i]);
      gathered_[i].reset();
    }
    return whole;
  }
  // Returns the same, and its matmul with `matrix` [K, N]: [B, T, N].
  std::pair<at::Tensor, at::Tensor> wait_and_multiply(const at::Tensor& matrix) {
    auto product = parts_.empty_whole(x_, matrix.size(1));
    auto whole =
        wait([&](std::int64_t i, const at::Tensor& part) { multiply_into(parts_.of_whole(product, i), part, matrix); });
    return {std::move(whole), std::move(product)};
  }

 private:
  Parts parts_;
  at::Tensor x_;
  std::vector<at::Tensor> sent_, gathered_;
  std::vector<dist::Work> works_;
};

// Computes x [B, T, K] times `matrix` [K, N], plus `term` [B, T, N] if it is defined, and sums it over the ranks.
// Sends each rank the sum of its tokens, part by part.
class Scattering {
 public:
  Scattering(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& term, dist::ProcessGroup& group)
      : parts_(x.size(1) / group.size(), group) {
    const auto shape = parts_.shape_of_part(x.size(0), matrix.size(1));
    for (std::int64_t i = 0; i < parts_.count(); ++i) {
      sent_.push_back(group.exchange_buffer(c10::multiply_integers(shape), x.options()));
      multiply_into(sent_[i].view(shape), parts_.of_whole(x, i), matrix);
      if (term.defined()) sent_[i].view(shape).add_(parts_.of_whole(term, i));
      own_.push_back(at::empty(at::IntArrayRef(shape).slice(1), x.options()));
      works_.push_back(group.reduce_scatter(own_[i], sent_[i], dist::ReduceOp::kSum));
    }
  }

  // Returns [B, T / R, N].
  at::Tensor wait() {
    for (auto& work : works_) work.wait();
    return at::cat(own_, 1);
  }

 private:
  Parts parts_;
  std::vector<at::Tensor> sent_, own_;
  std::vector<dist::Work> works_;
};

// `kept`: the output if the forward of a recomputed module has kept it; otherwise empty.
struct AllGatherLinear : torch::autograd::Function<AllGatherLinear> {
  static variable_list forward(AutogradContext* context, const Variable& x, const Variable& weight,
                               const nn::KeptTensors& kept, dist::ProcessGroup* group) {
    context->set_materialize_grads(false);
    keep_group(context, group);
    Gathering gathering(x, *group);
    at::Tensor whole, output;
    if (!kept.tensors.empty()) {
      whole = gathering.wait([](std::int64_t, const at::Tensor&) {});
      output = kept.tensors[0].detach();
    } else {
      std::tie(whole, output) = gathering.wait_and_multiply(weight.t());
    }
    context->save_for_backward({whole, weight});
    return {output, whole};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const auto &whole = saved[0], &weight = saved[1];
    auto& group = group_in(context);
    // grads[0] is undefined if nothing used the output, grads[1] if only the layer used the gathered input.
    const auto grad = grads[0].defined() ? grads[0].contiguous()
                                         : at::zeros({whole.size(0), whole.size(1), weight.size(0)}, whole.options());
    Scattering scattering(grad, weight, grads[1].defined() ? grads[1].contiguous() : grads[1], group);
    const auto weight_grad = as_matrix(grad).t().mm(as_matrix(whole));
    return {scattering.wait(), weight_grad, {}, {}};
  }
};

struct LinearReduceScatter : torch::autograd::Function<LinearReduceScatter> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const nn::KeptTensors& kept, dist::ProcessGroup* group) {
    keep_group(context, group);
    context->save_for_backward({x, weight});
    if (!kept.tensors.empty()) return kept.tensors[0].detach();
    return Scattering(x.contiguous(), weight.t(), {}, *group).wait();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto [whole, x_grad] = Gathering(grads[0], group_in(context)).wait_and_multiply(weight);
    return {x_grad, as_matrix(whole).t().mm(as_matrix(x)), {}, {}};
  }
};

// Traces like nn::apply_linear(). `apply` gets the output that was kept, or nothing.
template <typename Apply>
at::Tensor traced(const at::Tensor& weight, Apply apply) {
  auto* const trace = OpTrace::current();
  if (!trace) return apply(nn::KeptTensors());
  const auto action = trace->begin({nn::OpKind::kLinear, weight.sizes()}, /*keepable=*/true);
  const at::Tensor output = apply(action == OpTrace::Action::kTake ? trace->take() : nn::KeptTensors());
  if (action == OpTrace::Action::kComputeAndKeep) trace->keep({{output}});
  trace->end(output);
  return output;
}

}  // namespace

GatheredLinear all_gather_linear(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group) {
  GatheredLinear made;
  made.output = traced(weight, [&](const nn::KeptTensors& kept) {
    auto both = AllGatherLinear::apply(x, weight, kept, &group);
    made.whole = std::move(both[1]);
    return std::move(both[0]);
  });
  return made;
}

at::Tensor linear_reduce_scatter(const at::Tensor& x, const at::Tensor& weight, dist::ProcessGroup& group) {
  return traced(weight,
                [&](const nn::KeptTensors& kept) { return LinearReduceScatter::apply(x, weight, kept, &group); });
}

}  // namespace titan::tp
