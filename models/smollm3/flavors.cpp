#include "models/smollm3/flavors.h"

#include <map>

#include "models/common/check_shape.h"
#include "models/common/override_args.h"

namespace titan::models {
namespace {

constexpr std::int64_t kSmolLM3MaxSeqLen = 32768;

DecoderShape smollm3(std::int64_t dim, std::int64_t layers, std::int64_t heads, std::int64_t hidden,
                     std::int64_t vocab_size) {
  return {.block = {{dim, heads, /*n_kv_heads=*/4, dim / heads, RotaryPairs::kHalves}, hidden, /*norm_eps=*/1e-6},
          .n_layers = layers,
          .vocab_size = vocab_size,
          .rope_theta = 2e6,
          .tied = true,
          .no_rope_interval = 4};
}

const std::map<std::string, DecoderShape>& smollm3_flavors() {
  static const std::map<std::string, DecoderShape> kSmolLM3Flavors = {
      {"debugmodel", smollm3(256, 8, 8, 768, 2048)},
      {"3B", smollm3(2048, 36, 16, 11008, 128256)},
  };
  return kSmolLM3Flavors;
}

}  // namespace

std::vector<std::string> smollm3_flavor_names(const std::string& /*model*/) { return names_of(smollm3_flavors()); }

std::vector<Start> smollm3_starts(const std::string& model) {
  return {{model, "debugmodel", 0.006, 256, 4096, "8e-4", "none", "H100", 80},
          {model, "3B", 3.08, 4096, 1 << 21, "2e-4", "selective", "H100", 80}};
}

void check_smollm3_args(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  refuse_other_args(config, {"no_rope_layer_interval"}, errors);
  check_scaling_has_type(config, errors);
  check_decoder_args(config, errors);
  check_width_of_heads(config, errors);
}

HubDecoder smollm3_decoder(const config::Model& model) {
  DecoderShape shape = flavor_of(model, smollm3_flavors());
  override_decoder(shape, model.args);
  override_with(shape.no_rope_interval, model.args.no_rope_layer_interval);
  divide_width(shape.block.attention, model.args);
  check_decoder_shape(shape);
  return {shape, model.args.max_seq_len.value_or(kSmolLM3MaxSeqLen)};
}

}  // namespace titan::models
