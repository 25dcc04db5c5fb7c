#include "parallel/tensor_parallel/styles.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "facts/adapter_names.h"
#include "nn/layers.h"
#include "nn/lora_linear.h"
#include "nn/ops/cross_entropy.h"
#include "parallel/autograd_collectives.h"
#include "parallel/tensor_parallel/overlapped_linear.h"
#include "parallel/tensor_parallel/vocab_parallel_loss.h"

namespace titan::tp {
namespace {

constexpr std::int64_t kTokens = 1;  // the dim T of [B, T, D]

template <typename Layer>
Layer& layer_of(const nn::NamedModule& module, const char* style) {
  auto* const layer = dynamic_cast<Layer*>(module.module);
  if (!layer) throw InternalError(module.fqn + " is not a layer that " + style + " can split");
  return *layer;
}

void split(const nn::NamedModule& module, const dist::DeviceMesh& mesh, dist::Placement placement) {
  for (auto& parameter : module.module->own_parameters())
    nn::distribute({module.fqn + "." + parameter.name, module.module, &parameter}, mesh, {placement});
}

// Splits the weight of a linear layer along `dim`, with the bias, and an adapter: A has the layer's input features, B
// its output features. Each is whole on every rank if these are, and backward then leaves a term of its gradient there,
// because the product between them is computed from a part of the features, or for a part of them.
void split_linear(const nn::NamedModule& module, const dist::DeviceMesh& mesh, std::int64_t dim) {
  const char* const whole = dim == 0 ? kLoraA : kLoraB;
  for (auto& parameter : module.module->own_parameters()) {
    const bool is_whole = parameter.name == whole;
    const auto placement = is_whole ? dist::Placement(dist::Replicate{}) : dist::Placement(dist::Shard{dim});
    nn::distribute({module.fqn + "." + parameter.name, module.module, &parameter}, mesh, {placement});
    if (is_whole) parameter.gradient_terms = &mesh.group();
  }
}

void check_has_sequence(const at::Tensor& states) {
  if (states.dim() < 3)
    throw InternalError("sequence parallelism needs hidden states [B, T, D], and found " +
                        dist::shape_text(states.sizes()) + "; Layout::kWhole works with any shape");
}

void gather_first_input(nn::Module& module, dist::ProcessGroup& group) {
  module.add_pre_hook([&group](nn::Module&, nn::Tensors& inputs) {
    check_has_sequence(inputs[0]);
    inputs[0] = parallel::all_gather(inputs[0], kTokens, group);
  });
}

// Looks up only this rank's rows: a token of another rank gets zeros here, and the sum over the ranks is complete.
// The logical operators have no kernels for the meta device.
void look_up_own_rows(nn::Embedding& embedding, std::int64_t first) {
  embedding.add_forward_wrapper([&embedding, first](const nn::Module::Forward& forward, const nn::Tensors& inputs) {
    const auto local = inputs[0] - first;
    const auto is_elsewhere = at::bitwise_or(local < 0, local >= embedding.weight.size(0));
    return forward({local.masked_fill(is_elsewhere, 0)}).masked_fill(is_elsewhere.unsqueeze(-1), 0);
  });
}

nn::Linear& child_of(const nn::NamedModule& module, const std::string& name) {
  for (const auto& [child_name, child] : module.module->children())
    if (child_name == name) return layer_of<nn::Linear>({module.fqn + "." + name, child.get()}, "PrepareModuleInput");
  throw InternalError(module.fqn + " has no child " + name + " to overlap the gather of its input with");
}

// A style that computes a layer's product itself would leave out its adapter.
void check_has_no_adapter(const nn::Linear& linear, const std::string& style) {
  TITAN_CHECK(!dynamic_cast<const nn::LoraLinear*>(&linear), style + " takes no layer with an adapter (LoRA)");
}

const dist::ShardSpec& spec_of_weight(nn::Module& module) {
  return module.own_parameters().front().sharding.value().spec;
}

}  // namespace

void ColwiseParallel::apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const {
  auto& linear = layer_of<nn::Linear>(module, "ColwiseParallel");
  split_linear(module, mesh, /*dim=*/0);
  const std::int64_t features = spec_of_weight(linear).global_shape[0];
  auto& group = mesh.group();
  TITAN_CHECK(input_ != Layout::kFeatures, module.fqn + ": a ColwiseParallel layer needs all features of its input");
  if (input_ == Layout::kSequence) gather_first_input(linear, group);
  if (input_ == Layout::kWhole)
    linear.add_pre_hook(
        [&group](nn::Module&, nn::Tensors& inputs) { inputs[0] = parallel::sum_gradients(inputs[0], group); });
  if (output_ == Layout::kFeatures) return;
  TITAN_CHECK(output_ == Layout::kWhole, module.fqn + ": a ColwiseParallel layer has no part of the sequence");
  linear.add_post_hook([&group, features](nn::Module&, const nn::Tensors&, at::Tensor& output) {
    output = parallel::all_gather_replicated(output, output.dim() - 1, features, group);
  });
}

void RowwiseParallel::sum_output(nn::Module& module, dist::ProcessGroup& group) const {
  module.add_post_hook([&group, output_layout = output_](nn::Module&, const nn::Tensors&, at::Tensor& output) {
    if (output_layout == Layout::kWhole) {
      output = parallel::all_reduce(output, group);
    } else {
      check_has_sequence(output);
      output = parallel::reduce_scatter(output, kTokens, group);
    }
  });
}

void RowwiseParallel::apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const {
  TITAN_CHECK(output_ == Layout::kSequence || (output_ == Layout::kWhole && !overlaps_),
              module.fqn + ": the output of a RowwiseParallel layer is kWhole or kSequence, which alone can overlap");
  if (auto* const embedding = dynamic_cast<nn::Embedding*>(module.module)) {
    split(module, mesh, dist::Shard{0});
    look_up_own_rows(*embedding, spec_of_weight(*embedding).offset[0]);
    sum_output(*embedding, mesh.group());
    return;
  }
  auto& linear = layer_of<nn::Linear>(module, "RowwiseParallel");
  TITAN_CHECK(!linear.bias.defined(), module.fqn +
                                          ": RowwiseParallel does not split a layer with a bias, which every "
                                          "rank would add to its part of the sum");
  split_linear(module, mesh, /*dim=*/1);
  if (!overlaps_) return sum_output(linear, mesh.group());
  check_has_no_adapter(linear, "RowwiseParallel that overlaps");
  linear.add_forward_wrapper([&linear, &group = mesh.group()](const nn::Module::Forward&, const nn::Tensors& inputs) {
    return linear_reduce_scatter(inputs[0], linear.weight, group);
  });
}

void SequenceParallel::apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const {
  split(module, mesh, dist::Replicate{});
  for (auto& parameter : module.module->own_parameters()) parameter.gradient_terms = &mesh.group();
}

void PrepareModuleInput::apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const {
  if (overlapped_with_.empty()) return gather_first_input(*module.module, mesh.group());
  // Holds the input gathered by the first layer, until the last one has used it.
  const auto whole = std::make_shared<at::Tensor>();
  for (const auto& name : overlapped_with_) {
    auto& linear = child_of(module, name);
    check_has_no_adapter(linear, "PrepareModuleInput that overlaps");
    const bool is_first = name == overlapped_with_.front(), is_last = name == overlapped_with_.back();
    linear.add_forward_wrapper(
        [=, &linear, &group = mesh.group()](const nn::Module::Forward& forward, const nn::Tensors& inputs) {
          if (!is_first) return forward({is_last ? std::exchange(*whole, at::Tensor()) : *whole});
          auto made = all_gather_linear(inputs[0], linear.weight, group);
          *whole = std::move(made.whole);
          return linear.add_bias(made.output);
        });
  }
}

void VocabParallelLoss::apply(const nn::NamedModule& module, const dist::DeviceMesh& mesh) const {
  auto& linear = layer_of<nn::Linear>(module, "VocabParallelLoss");
  check_has_no_adapter(linear, "VocabParallelLoss");
  TITAN_CHECK(!linear.bias.defined(), module.fqn + ": VocabParallelLoss does not split a layer with a bias");
  split(module, mesh, dist::Shard{0});
  auto& group = mesh.group();
  const std::int64_t vocab = spec_of_weight(linear).global_shape[0], first = spec_of_weight(linear).offset[0];
  gather_first_input(linear, group);
  const auto losses = gathers_logits_ ? nullptr : std::make_shared<VocabParallelLosses>(first, vocab, group);
  linear.add_forward_wrapper([=, &linear, &group](const nn::Module::Forward& forward, const nn::Tensors& inputs) {
    const auto row_weights = inputs.size() > 2 ? nn::row_weights_of(inputs[2], linear.weight.device()) : at::Tensor();
    if (inputs.size() > 1 && losses)
      return nn::linear_cross_entropy_sum(inputs[0], linear.weight, inputs[1], *losses, row_weights);
    const auto logits = parallel::all_gather_replicated(forward({inputs[0]}), inputs[0].dim() - 1, vocab, group);
    return inputs.size() > 1 ? nn::cross_entropy_sum(logits, inputs[1], row_weights) : logits;
  });
}

}  // namespace titan::tp
