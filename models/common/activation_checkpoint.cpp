#include "models/common/activation_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "nn/checkpointed.h"
#include "nn/layers.h"

namespace titan::models {
namespace {

bool contains_one_of(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const auto& part) { return text.find(part) != std::string::npos; });
}

// Returns the weight shapes of the linear layers of `block` that the configuration names.
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

std::size_t parse_interval(const std::string& option) {
  std::size_t interval = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), interval);
  if (error == std::errc() && end == option.data() + option.size() && interval > 0) return interval;
  throw ConfigError("activation_checkpoint.selective_ac_option = \"" + option +
                    "\": expected \"op\" or the number of blocks of which one is recomputed, at least 1");
}

}  // namespace

void checkpoint_blocks(const nn::ModuleList& blocks, const std::string& fqn,
                       const config::ActivationCheckpoint& config) {
  if (config.mode == "none") return;
  nn::CheckpointOptions options{.preserve_rng_state = config.preserve_rng_state,
                                .determinism_check = config.determinism_check == "default",
                                .debug = config.debug};
  const bool by_operator = config.mode == "selective" && config.selective_ac_option == "op";
  const std::size_t every = config.mode == "full" || by_operator ? 1 : parse_interval(config.selective_ac_option);
  for (const auto& [name, block] : blocks.children()) {
    if ((std::stoull(name) + 1) % every != 0) continue;
    if (by_operator) {
      options.policy =
          [shapes = named_shapes(*block, fqn + "." + name, config.per_op_sac_force_recompute_mm_shapes_by_fqns)] {
            return nn::keep_every_second_linear(shapes);
          };
    }
    nn::checkpoint_activations(*block, options);
  }
}

}  // namespace titan::models
