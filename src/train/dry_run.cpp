#include "train/dry_run.h"

#include <spdlog/fmt/fmt.h>

#include "base/text.h"
#include "config/validate.h"
#include "dist/parallel_dims.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/setup.h"

namespace titan::train {
namespace {

struct Bytes {
  std::int64_t parameters = 0;     // shards with their padding
  std::int64_t largest_group = 0;  // gathered, in the compute dtype
  std::int64_t second_group = 0;
};

Bytes count_bytes(nn::Module& model, std::int64_t stored_size, std::int64_t compute_size, int shard_size) {
  Bytes bytes;
  for (auto* state : fsdp::FsdpState::all_below(model)) {
    if (!state->group()) continue;
    std::int64_t numel = 0;
    for (const auto* param : state->group()->params()) numel += param->chunk_numel();
    bytes.parameters += numel * stored_size;
    const std::int64_t gathered = numel * shard_size * compute_size;
    if (gathered > bytes.largest_group) {
      bytes.second_group = bytes.largest_group;
      bytes.largest_group = gathered;
    } else {
      bytes.second_group = std::max(bytes.second_group, gathered);
    }
  }
  return bytes;
}

}  // namespace

std::string dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size) {
  const auto dims = dist::ParallelDims::from_config(config.parallelism, world_size);
  const auto accumulation = config::num_accumulation_steps(config, world_size);
  auto world = dist::World::on_paper(world_size);
  const auto meshes = dist::Meshes::build(*world, dims);
  auto model = spec.build_model(spec.document_end);
  spec.parallelize(*model, meshes.fsdp, config.training, config.parallelism, config.activation_checkpoint);

  const auto size_of = [](const std::string& dtype) { return std::int64_t{dtype == "float32" ? 4 : 2}; };
  const std::int64_t stored = size_of(config.training.dtype);
  const auto bytes = count_bytes(*model, stored, size_of(config.training.mixed_precision_param), dims.dp_shard);
  const std::int64_t tokens = config.training.local_batch_size * config.training.seq_len;
  const std::int64_t logits = tokens * spec.stats.vocab_size * (size_of(config.training.mixed_precision_param) + 4);
  const auto flops = flops_per_token(spec.stats, config.training.seq_len);
  const auto state_total = 4 * bytes.parameters;
  const auto line = [](const std::string& what, const std::string& value) {
    return fmt::format("  {:<44}{:>18}\n", what, value);
  };
  const auto size = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  std::string out =
      fmt::format("{}: {} ranks = {} replicas x {} shards\n", spec.name, world_size, dims.dp_replicate, dims.dp_shard);
  out += line("parameters", with_thousands(spec.stats.num_parameters));
  out += line("FLOPs a token (forward and backward)", with_thousands(flops));
  out += line("sequences a step", with_thousands(accumulation * config.training.local_batch_size * dims.dp()));
  out += line("tokens a step", with_thousands(accumulation * tokens * dims.dp()));
  out += "bytes a rank\n";
  out += line("parameters (" + config.training.dtype + " shards)", size(bytes.parameters));
  out += line("gradients", size(bytes.parameters));
  out += line("AdamW moments", size(2 * bytes.parameters));
  out += line("gathered parameters (two largest groups)", size(bytes.largest_group + bytes.second_group));
  out += line("logits and their float32 copy", size(logits));
  out += line("sum, without other activations", size(state_total + bytes.largest_group + bytes.second_group + logits));
  return out;
}

}  // namespace titan::train
