#include "models/common/parallelize.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "config/keys/values/float8_keys.h"
#include "config/pipeline_plan.h"
#include "models/common/activation_checkpoint.h"
#include "models/common/convert/float8_layers.h"
#include "models/common/fully_shard_options.h"
#include "models/common/wrap_groups.h"
#include "parallel/context/split_attention.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::models {
namespace {

Decoder& decoder(LanguageModel& model) { return dynamic_cast<Decoder&>(model); }

void keep_own_stages(LanguageModel& model, const ParallelContext& context) {
  if (context.meshes.pp.size() == 1 || context.any_length) return;
  Decoder& whole = decoder(model);
  const auto plan = config::pipeline_plan(context.job, whole.shape().n_layers);
  whole.keep_stages(plan.stages_of_rank(context.meshes.pp.local_rank("pp")));
}

// Returns the plan without rows for modules that other ranks have.
tp::Plan rows_of_own_modules(tp::Plan plan, Decoder& model) {
  const Decoder::Parts parts = model.parts();
  std::erase_if(plan, [&](const auto& row) {
    const std::string& pattern = row.first;
    return (pattern == "tok_embeddings" && !parts.tok_embeddings) || (pattern == "norm" && !parts.norm) ||
           (pattern == "output" && !parts.output) || (pattern.starts_with("layers.") && parts.layers->size() == 0);
  });
  return plan;
}

void split_layers(LanguageModel& model, const ParallelContext& context) {
  if (context.meshes.tp.size() == 1) return;
  const DecoderShape& shape = decoder(model).shape();
  config::Parallelism parallelism = context.job.parallelism;
  if (config::uses_float8(context.job)) parallelism.enable_async_tensor_parallel = false;  // there is a warning
  auto plan = context.any_length ? whole_sequence_plan(shape) : tensor_parallel_plan(shape, parallelism);
  tp::parallelize_module(model, context.meshes.tp, rows_of_own_modules(std::move(plan), decoder(model)));
}

void share_rows(LanguageModel& model, const ParallelContext& context) {
  if (!context.splits_rows()) return;
  const config::Parallelism& parallelism = context.job.parallelism;
  parallel::split_attention_cores(
      model, parallel::row_sharing(context.meshes.cp.group(), parallelism.context_parallel_load_balancer,
                                   parallelism.context_parallel_rotate_method));
}

void recompute_blocks(LanguageModel& model, const ParallelContext& context) {
  if (const auto* blocks = decoder(model).parts().layers)
    checkpoint_blocks(*blocks, "layers", context.job.activation_checkpoint);
}

// Shards by parallelism.fsdp_wrap. Backward starts with the groups of the output projection and of the root, which
// takes what no group has.
void shard_groups(Decoder& model, const std::vector<fsdp::WrapGroup>& groups, fsdp::FullyShardOptions options,
                  const ReshardRule& reshard) {
  for (const fsdp::WrapGroup& group : groups) {
    const bool is_last = std::ranges::count(group.modules, model.parts().output) > 0;
    options.reshard_after_forward = is_last ? reshard.last : reshard.blocks;
    fsdp::fully_shard(group.modules, options);
  }
  options.reshard_after_forward = reshard.last;
  fsdp::fully_shard(model, options);
}

// Returns true if one stage of a pipeline has the norm and another the output projection.
bool parts_norm_from_output(const Decoder& model) {
  return std::ranges::any_of(model.stages(), [](const auto& stage) { return stage.has_norm != stage.has_output; });
}

// Modules in one call communicate together. A tied parameter has one group.
void shard_blocks(Decoder& model, fsdp::FullyShardOptions options, const ReshardRule& reshard) {
  const Decoder::Parts parts = model.parts();
  const bool tied = model.shape().tied;
  options.reshard_after_forward = reshard.blocks;
  if (parts.tok_embeddings && !tied) fsdp::fully_shard(*parts.tok_embeddings, options);
  if (parts.layers)
    for (const auto& [name, block] : parts.layers->children()) fsdp::fully_shard(*block, options);
  std::vector<nn::Module*> last = {parts.norm, parts.output};
  if (tied) last.insert(last.begin(), parts.tok_embeddings);
  std::erase(last, nullptr);
  options.reshard_after_forward = reshard.last;
  if (parts_norm_from_output(model)) {
    for (auto* module : last) fsdp::fully_shard(*module, options);
  } else if (!last.empty()) {
    fsdp::fully_shard(last, options);
  }
  options.reshard_after_forward = std::nullopt;
  fsdp::fully_shard(model, options);
}

void shard(LanguageModel& model, const ParallelContext& context) {
  const auto options = fully_shard_options(context);
  const ReshardRule reshard = reshard_rule(context);
  if (const auto groups = wrap_groups(model, context.job.parallelism)) {
    shard_groups(decoder(model), *groups, options, reshard);
  } else {
    shard_blocks(decoder(model), options, reshard);
  }
  fsdp::set_gradient_divide_factor(model, 1.0);
}

}  // namespace

// A block gathers the sequence twice, before the matmuls of attention and of the feed-forward, and reduce-scatters the
// results of their last matmuls. With enable_async_tensor_parallel, this communication overlaps with the matmuls.
tp::Plan tensor_parallel_plan(const DecoderShape& shape, const config::Parallelism& parallelism) {
  const auto colwise = std::make_shared<tp::ColwiseParallel>(tp::Layout::kGathered);
  const bool overlaps = parallelism.enable_async_tensor_parallel;
  const auto rowwise = std::make_shared<tp::RowwiseParallel>(tp::Layout::kSequence, overlaps);
  const auto gather_sequence = [&](std::vector<std::string> first_layers) {
    return overlaps ? std::make_shared<tp::PrepareModuleInput>(std::move(first_layers))
                    : std::make_shared<tp::PrepareModuleInput>();
  };
  const auto sequence_parallel = std::make_shared<tp::SequenceParallel>();
  // clang-format off
  tp::Plan plan = {
      {"tok_embeddings",              rowwise},
      {"layers.*.attention_norm",     sequence_parallel},
      {"layers.*.attention",          gather_sequence({"wq", "wk", "wv"})},
      {"layers.*.attention.wq",       colwise},
      {"layers.*.attention.wk",       colwise},
      {"layers.*.attention.wv",       colwise},
      {"layers.*.attention.wo",       rowwise},
      {"layers.*.ffn_norm",           sequence_parallel},
      {"layers.*.feed_forward",       gather_sequence({"w1", "w3"})},
      {"layers.*.feed_forward.w1",    colwise},
      {"layers.*.feed_forward.w3",    colwise},
      {"layers.*.feed_forward.w2",    rowwise},
      {"norm",                        sequence_parallel},
      {"output",                      std::make_shared<tp::VocabParallelLoss>(parallelism.disable_loss_parallel)},
  };
  // clang-format on
  // Each rank normalizes its own heads with the same weight.
  if (shape.block.attention.qk_norm_eps)
    for (const char* norm : {"layers.*.attention.q_norm", "layers.*.attention.k_norm"})
      plan.emplace_back(norm, sequence_parallel);
  return plan;
}

tp::Plan whole_sequence_plan(const DecoderShape& shape) {
  const auto colwise = std::make_shared<tp::ColwiseParallel>();
  const auto rowwise = std::make_shared<tp::RowwiseParallel>();
  const auto replicated = std::make_shared<tp::SequenceParallel>();  // works on each token separately, on all of them
  // clang-format off
  tp::Plan plan = {
      {"tok_embeddings",              rowwise},
      {"layers.*.attention_norm",     replicated},
      {"layers.*.attention.wq",       colwise},
      {"layers.*.attention.wk",       colwise},
      {"layers.*.attention.wv",       colwise},
      {"layers.*.attention.wo",       rowwise},
      {"layers.*.ffn_norm",           replicated},
      {"layers.*.feed_forward.w1",    colwise},
      {"layers.*.feed_forward.w3",    colwise},
      {"layers.*.feed_forward.w2",    rowwise},
      {"norm",                        replicated},
      {"output",                      std::make_shared<tp::ColwiseParallel>(tp::Layout::kWhole, tp::Layout::kWhole)},
  };
  // clang-format on
  if (shape.block.attention.qk_norm_eps)
    for (const char* norm : {"layers.*.attention.q_norm", "layers.*.attention.k_norm"})
      plan.emplace_back(norm, replicated);
  return plan;
}

std::vector<ModelPass> decoder_passes() {
  return {{"float8", use_float8},  {kPipelinePass, keep_own_stages}, {"tensor", split_layers},
          {"context", share_rows}, {"recompute", recompute_blocks},  {"shard", shard}};
}

}  // namespace titan::models
