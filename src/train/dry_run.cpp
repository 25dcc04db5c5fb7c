#include "train/dry_run.h"

#include <spdlog/fmt/fmt.h>

#include "base/text.h"
#include "config/validate.h"
#include "dist/parallel_dims.h"
#include "kernels/choice.h"
#include "train/memory_estimate.h"
#include "train/setup.h"

namespace titan::train {

std::string dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                    std::optional<Device> device) {
  const auto dims = dist::ParallelDims::from_config(config.parallelism, world_size);
  const auto accumulation = config::num_accumulation_steps(config, world_size);
  const auto bytes = estimate_memory(config, spec, world_size);
  const std::int64_t sequences = accumulation * config.training.local_batch_size * dims.dp();
  const auto line = [](const std::string& what, const std::string& value) {
    return fmt::format("  {:<52}{:>18}\n", what, value);
  };
  const auto size = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  std::string out =
      fmt::format("{}: {} ranks = {} replicas x {} shards\n", spec.name, world_size, dims.dp_replicate, dims.dp_shard);
  out += line("parameters", with_thousands(spec.stats.num_parameters));
  out += line("FLOPs a token (forward and backward)",
              with_thousands(flops_per_token(spec.stats, config.training.seq_len)));
  out += line("sequences a step", with_thousands(sequences));
  out += line("tokens a step", with_thousands(sequences * config.training.seq_len));
  out += "bytes a rank\n";
  out += line("parameters (" + config.training.dtype + " shards)", size(bytes.parameters));
  out += line("gradients", size(bytes.gradients));
  out += line("AdamW moments", size(bytes.optimizer));
  out += line("gathered parameters (two largest groups)", size(bytes.gathered));
  out += line("activations kept for backward (recompute: " + config.activation_checkpoint.mode + ")",
              size(bytes.activations));
  out += line(kernels::uses_own() ? "logits in memory at once" : "logits and their float32 copy", size(bytes.logits));
  if (bytes.staging > 0) out += line("copy of the state for a save beside training (host)", size(bytes.staging));
  out += line("predicted peak", size(bytes.peak));
  if (device) {
    const double part = static_cast<double>(bytes.peak) / static_cast<double>(device->bytes);
    const std::string verdict = fmt::format("{} ({:.0f} % of {})", part < kUsablePart ? "fits" : "does not fit",
                                            100 * part, size(device->bytes));
    out += line(device->name, verdict);
  }
  return out;
}

}  // namespace titan::train
