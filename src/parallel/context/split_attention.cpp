#include "parallel/context/split_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "nn/ops/traced_op.h"
#include "parallel/context/shared_rows.h"
#include "parallel/group_in_graph.h"

namespace titan::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The node of an attention whose output and logarithms of sums are known.
struct SplitAttention : torch::autograd::Function<SplitAttention> {
  static Variable forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& lengths, const RowSharing& sharing, const nn::KeptTensors& kept) {
    context->save_for_backward({q, k, v, lengths, kept.tensors[0], kept.tensors[1]});
    context->saved_data["balance"] = static_cast<std::int64_t>(sharing.balance);
    context->saved_data["rotation"] = static_cast<std::int64_t>(sharing.rotation);
    keep_group(context, &sharing.group);
    return kept.tensors[0].detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const RowSharing sharing{group_in(context), static_cast<LoadBalance>(context->saved_data["balance"].toInt()),
                             static_cast<Rotation>(context->saved_data["rotation"].toInt())};
    const auto [of_q, of_k, of_v] =
        shared_rows(sharing, saved[0], saved[3])
            ->backward(grad_outputs[0], saved[0], saved[1], saved[2], {.out = saved[4], .sums = saved[5]});
    return {of_q, of_k, of_v, {}, {}, {}};
  }
};

}  // namespace

RowSharing row_sharing(dist::ProcessGroup& group, const std::optional<std::string>& load_balancer,
                       const std::string& rotate_method) {
  RowSharing sharing{.group = group};
  TITAN_CHECK(!load_balancer || *load_balancer == "headtail" || *load_balancer == "ptrr", *load_balancer);
  if (!load_balancer) sharing.balance = LoadBalance::kNone;
  if (load_balancer == "ptrr") sharing.balance = LoadBalance::kByWork;
  TITAN_CHECK(rotate_method == "allgather" || rotate_method == "alltoall", rotate_method);
  if (rotate_method == "alltoall") sharing.rotation = Rotation::kRing;
  return sharing;
}

at::Tensor split_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& lengths,
                           const RowSharing& sharing) {
  const auto attend = [&] {
    const at::NoGradGuard no_grad;
    auto [out, sums] = shared_rows(sharing, q, lengths)->forward(q, k, v);
    return nn::KeptTensors{{std::move(out), std::move(sums)}};
  };
  const auto with_node = [&](const nn::KeptTensors& kept) {
    return SplitAttention::apply(q, k, v, lengths, sharing, kept);
  };
  auto* trace = nn::OpTrace::current();
  if (!trace) return with_node(attend());
  return nn::run_traced(
      *trace, {nn::OpKind::kAttention}, /*keepable=*/true, [&] { return with_node(attend()); }, attend, with_node);
}

at::Tensor SplitAttentionCore::forward(const nn::Tensors& inputs) {
  const at::Tensor& q = inputs[0];
  const auto tokens = q.size(0) * q.size(2);
  const bool is_split = inputs.size() > 3 && inputs[3].sum().item<std::int64_t>() == tokens * sharing_.group.size();
  return is_split ? split_attention(q, inputs[1], inputs[2], inputs[3], sharing_) : AttentionCore::forward(inputs);
}

void split_attention_cores(nn::Module& model, const RowSharing& sharing) {
  std::vector<std::pair<nn::Module*, std::string>> cores;  // found first: replacing ends modules that the walk visits
  for (const auto& [fqn, module] : model.named_modules())
    for (const auto& [name, child] : module->children())
      if (std::dynamic_pointer_cast<nn::AttentionCore>(child)) cores.emplace_back(module, name);
  for (const auto& [parent, name] : cores) parent->replace_child(name, std::make_shared<SplitAttentionCore>(sharing));
}

}  // namespace titan::parallel
