#include "models/llama3/parallelize.h"

#include <algorithm>

#include "base/error.h"
#include "config/validate.h"
#include "distributed/dtype.h"
#include "nn/checkpointed.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::models {
namespace {

bool contains_one_of(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const auto& part) { return text.find(part) != std::string::npos; });
}

// The weight shapes of the linear layers of `block` that the configuration names.
std::vector<std::vector<std::int64_t>> named_shapes(nn::Module& block, const std::string& block_fqn,
                                                    const std::vector<std::string>& names) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto& [fqn, module] : block.named_modules()) {
    const std::string full = block_fqn + "." + fqn;
    if (!contains_one_of(full, names)) continue;
    const auto* linear = dynamic_cast<nn::Linear*>(module);
    if (!linear) {
      throw ConfigError("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns must name linear layers; " +
                        full + " is none");
    }
    shapes.push_back(linear->weight.sizes().vec());
  }
  return shapes;
}

// "full": every block. "selective" with n: every n-th block (TorchTitan's count starts so that the n-th is the first);
// with "op": every block, which keeps some of its operators' outputs.
void apply_activation_checkpointing(Llama& model, const config::ActivationCheckpoint& config) {
  if (config.mode == "none") return;
  nn::CheckpointOptions options{.preserve_rng_state = config.preserve_rng_state,
                                .determinism_check = config.determinism_check == "default",
                                .debug = config.debug};
  const bool by_operator = config.mode == "selective" && config.selective_ac_option == "op";
  const std::size_t every = config.mode == "full" || by_operator ? 1 : std::stoul(config.selective_ac_option);
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    if ((i + 1) % every != 0) continue;
    auto& block = model.layers()[i];
    if (by_operator) {
      options.policy = [shapes = named_shapes(block, "layers." + std::to_string(i),
                                              config.per_op_sac_force_recompute_mm_shapes_by_fqns)] {
        return nn::keep_every_second_linear(shapes);
      };
    }
    nn::checkpoint_activations(block, options);
  }
}

// "default" keeps the last group: backward starts with it. "always" and "never" are literal; a number re-shards over so
// many neighbours, and again keeps the last group.
struct ReshardRule {
  fsdp::ReshardAfterForward blocks;
  fsdp::ReshardAfterForward last;
};

ReshardRule reshard_rule(const config::Parallelism& parallelism, int num_shards) {
  const std::string& policy = parallelism.fsdp_reshard_after_forward;
  if (policy == "always") return {true, true};
  if (policy == "never") return {false, false};
  const auto size = config::reshard_group_size(parallelism, num_shards);
  if (!size) return {true, false};
  return {static_cast<int>(*size), false};
}

}  // namespace

void parallelize_llama(Llama& model, const dist::DeviceMesh& mesh, const config::Training& training,
                       const config::Parallelism& parallelism,
                       const config::ActivationCheckpoint& activation_checkpoint) {
  apply_activation_checkpointing(model, activation_checkpoint);

  fsdp::FullyShardOptions options{.mesh = mesh};
  options.mp_policy.param_dtype = dist::dtype_of(training.mixed_precision_param);
  options.mp_policy.reduce_dtype = dist::dtype_of(training.mixed_precision_reduce);
  if (training.enable_cpu_offload) options.offload_policy = fsdp::CPUOffloadPolicy{};
  const ReshardRule reshard = reshard_rule(parallelism, mesh.size(mesh.dim_names().back()));

  options.reshard_after_forward = reshard.blocks;
  fsdp::fully_shard(model.tok_embeddings(), options);
  for (std::size_t i = 0; i < model.layers().size(); ++i) fsdp::fully_shard(model.layers()[i], options);
  options.reshard_after_forward = reshard.last;
  fsdp::fully_shard({&model.norm(), &model.output()}, options);
  options.reshard_after_forward = std::nullopt;
  fsdp::fully_shard(model, options);
  fsdp::set_gradient_divide_factor(model, 1.0);
}

}  // namespace titan::models
