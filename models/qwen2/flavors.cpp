#include "models/qwen2/flavors.h"

#include <map>

#include "models/common/check_shape.h"
#include "models/common/override_args.h"

namespace titan::models {
namespace {

constexpr std::int64_t kQwen2MaxSeqLen = 32768;

DecoderShape qwen2(std::int64_t dim, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t hidden, std::int64_t vocab_size, bool tied) {
  DecoderShape shape{.block = {{dim, heads, kv_heads, dim / heads, RotaryPairs::kHalves}, hidden, /*norm_eps=*/1e-6},
                     .n_layers = layers,
                     .vocab_size = vocab_size,
                     .rope_theta = 1e6,
                     .tied = tied};
  shape.block.attention.qkv_bias = true;
  return shape;
}

const std::map<std::string, DecoderShape>& qwen2_flavors() {
  static const std::map<std::string, DecoderShape> kQwen2Flavors = {
      {"debugmodel", qwen2(256, 6, 8, 2, 768, 2048, /*tied=*/true)},
      {"0.5B", qwen2(896, 24, 14, 2, 4864, 151936, /*tied=*/true)},
      {"1.5B", qwen2(1536, 28, 12, 2, 8960, 151936, /*tied=*/true)},
      {"3B", qwen2(2048, 36, 16, 2, 11008, 151936, /*tied=*/true)},
      {"7B", qwen2(3584, 28, 28, 4, 18944, 152064, /*tied=*/false)},
  };
  return kQwen2Flavors;
}

}  // namespace

std::vector<std::string> qwen2_flavor_names(const std::string& /*model*/) { return names_of(qwen2_flavors()); }

// Learning rates are usual ones of these sizes: Qwen2.5's report does not give its own.
std::vector<Start> qwen2_starts(const std::string& model) {
  return {{model, "debugmodel", 0.005, 256, 4096, "8e-4", "none", "H100", 80},
          {model, "0.5B", 0.49, 4096, 1 << 19, "3e-4", "selective", "H100", 80},
          {model, "1.5B", 1.54, 4096, 1 << 19, "3e-4", "selective", "H100", 80},
          {model, "3B", 3.09, 4096, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "7B", 7.6, 4096, 1 << 20, "3e-4", "selective", "H100", 80}};
}

void check_qwen2_args(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  refuse_other_args(config, {"qkv_bias"}, errors);
  if (config.checkpoint.last_save_in_hf && config.model.args.qkv_bias == false)
    errors.push_back({std::string("checkpoint.last_save_in_hf: ") + kNoQkvBias + "; set it to false",
                      {"checkpoint.last_save_in_hf", "model.args.qkv_bias"}});
  check_scaling_has_type(config, errors);
  check_decoder_args(config, errors);
  check_width_of_heads(config, errors);
}

HubDecoder qwen2_decoder(const config::Model& model) {
  DecoderShape shape = flavor_of(model, qwen2_flavors());
  override_decoder(shape, model.args);
  override_with(shape.block.attention.qkv_bias, model.args.qkv_bias);
  divide_width(shape.block.attention, model.args);
  check_decoder_shape(shape);
  return {shape, model.args.max_seq_len.value_or(kQwen2MaxSeqLen)};
}

}  // namespace titan::models
