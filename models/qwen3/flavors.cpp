#include "models/qwen3/flavors.h"

#include <map>

#include "models/common/check_shape.h"
#include "models/common/override_args.h"

namespace titan::models {
namespace {

constexpr std::int64_t kHeadDim = 128, kVocabulary = 151936;
constexpr double kNormEps = 1e-6;
// The longest sequence of TorchTitan's flavors.
constexpr std::int64_t kQwen3MaxSeqLen = 4096;

DecoderShape qwen3(std::int64_t dim, std::int64_t layers, std::int64_t heads, std::int64_t hidden, bool tied) {
  return {.block = {{dim, heads, /*n_kv_heads=*/8, kHeadDim, RotaryPairs::kHalves, kNormEps}, hidden, kNormEps},
          .n_layers = layers,
          .vocab_size = kVocabulary,
          .rope_theta = 1e6,
          .tied = tied};
}

DecoderShape debugmodel() {
  DecoderShape shape = qwen3(256, 8, 16, 3072, /*tied=*/true);
  shape.vocab_size = 2048;
  return shape;
}

const std::map<std::string, DecoderShape>& qwen3_flavors() {
  static const std::map<std::string, DecoderShape> kQwen3Flavors = {
      {"debugmodel", debugmodel()},
      {"0.6B", qwen3(1024, 28, 16, 3072, /*tied=*/true)},
      {"1.7B", qwen3(2048, 28, 16, 6144, /*tied=*/true)},
      {"4B", qwen3(2560, 36, 32, 9728, /*tied=*/true)},
      {"8B", qwen3(4096, 36, 32, 12288, /*tied=*/false)},
      {"14B", qwen3(5120, 40, 40, 17408, /*tied=*/false)},
      {"32B", qwen3(5120, 64, 64, 25600, /*tied=*/false)},
  };
  return kQwen3Flavors;
}

}  // namespace

std::vector<std::string> qwen3_flavor_names(const std::string& /*model*/) { return names_of(qwen3_flavors()); }

// Learning rates are usual ones of these sizes: Qwen3's report does not give its own.
std::vector<Start> qwen3_starts(const std::string& model) {
  return {{model, "debugmodel", 0.032, 256, 4096, "8e-4", "none", "H100", 80},
          {model, "0.6B", 0.6, 4096, 1 << 19, "3e-4", "selective", "H100", 80},
          {model, "1.7B", 1.72, 4096, 1 << 19, "3e-4", "selective", "H100", 80},
          {model, "4B", 4.02, 4096, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "8B", 8.2, 4096, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "14B", 14.8, 4096, 1 << 20, "3e-4", "full", "H100", 80},
          {model, "32B", 32.8, 4096, 1 << 20, "2e-4", "full", "H100", 80}};
}

void check_qwen3_args(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  refuse_other_args(config, {"qk_norm"}, errors);
  if (config.checkpoint.last_save_in_hf && config.model.args.qk_norm == false)
    errors.push_back({std::string("checkpoint.last_save_in_hf: ") + kNoQkNorm + "; set it to false",
                      {"checkpoint.last_save_in_hf", "model.args.qk_norm"}});
  check_scaling_has_type(config, errors);
  check_decoder_args(config, errors);
}

HubDecoder qwen3_decoder(const config::Model& model) {
  DecoderShape shape = flavor_of(model, qwen3_flavors());
  const config::ModelArgs& args = model.args;
  override_decoder(shape, args);
  AttentionShape& attention = shape.block.attention;
  attention.qk_norm_eps = shape.block.norm_eps;
  if (args.qk_norm && !*args.qk_norm) attention.qk_norm_eps = std::nullopt;
  check_decoder_shape(shape);
  return {shape, args.max_seq_len.value_or(kQwen3MaxSeqLen)};
}

}  // namespace titan::models
