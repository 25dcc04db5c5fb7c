#include "models/llama3/flavors.h"

#include <cmath>
#include <vector>

#include "models/common/check_shape.h"
#include "models/common/override_args.h"

namespace titan::models {
namespace {

LlamaArgs llama3(std::int64_t dim, std::int64_t layers, std::int64_t heads, std::optional<std::int64_t> kv_heads,
                 std::int64_t vocab, std::optional<double> multiplier, std::int64_t multiple_of) {
  LlamaArgs args;
  args.dim = dim;
  args.n_layers = layers;
  args.n_heads = heads;
  args.n_kv_heads = kv_heads;
  args.vocab_size = vocab;
  args.ffn_dim_multiplier = multiplier;
  args.multiple_of = multiple_of;
  args.rope_theta = 500000;
  return args;
}

// Returns a model of Llama 3.2: tied, with a larger scaling of the rotary frequencies.
LlamaArgs llama3_2(std::int64_t dim, std::int64_t layers, std::int64_t heads, double multiplier) {
  LlamaArgs args = llama3(dim, layers, heads, 8, 128256, multiplier, 256);
  args.rope_scaling->scaling_factor = 32;
  args.tied = true;
  return args;
}

LlamaArgs block_causal(LlamaArgs args) {
  args.block_causal = true;
  return args;
}

LlamaArgs llama2(std::int64_t dim, std::int64_t layers, std::int64_t heads, std::optional<std::int64_t> kv_heads,
                 std::optional<double> multiplier, std::int64_t multiple_of) {
  LlamaArgs args = llama3(dim, layers, heads, kv_heads, 32000, multiplier, multiple_of);
  args.rope_theta = 10000;
  args.rope_scaling = std::nullopt;
  args.max_seq_len = 4096;
  return args;
}

}  // namespace

std::int64_t LlamaArgs::hidden_dim() const {
  if (width) return *width;
  auto hidden = 2 * (4 * dim) / 3;
  if (ffn_dim_multiplier) hidden = static_cast<std::int64_t>(*ffn_dim_multiplier * static_cast<double>(hidden));
  return multiple_of * ((hidden + multiple_of - 1) / multiple_of);
}

DecoderShape LlamaArgs::decoder() const {
  return {.block = {{dim, n_heads, kv_heads(), head_dim()}, hidden_dim(), norm_eps},
          .n_layers = n_layers,
          .vocab_size = vocab_size,
          .rope_theta = rope_theta,
          .rope_scaling = rope_scaling,
          .depth_init = depth_init,
          .tied = tied,
          .block_causal = block_causal};
}

const std::map<std::string, std::map<std::string, LlamaArgs>>& llama_flavors() {
  const LlamaArgs debugmodel = llama3(256, 6, 16, {}, 2048, {}, 256);
  const LlamaArgs llama3_8b = llama3(4096, 32, 32, 8, 128256, 1.3, 1024);
  static const std::map<std::string, std::map<std::string, LlamaArgs>> kFlavors = {
      {"llama3",
       {{"debugmodel", debugmodel},
        {"debugmodel_flex_attn", block_causal(debugmodel)},
        {"debugmodel_varlen_attn", block_causal(debugmodel)},
        {"1B", llama3_2(2048, 16, 32, 1.5)},
        {"3B", llama3_2(3072, 28, 24, 1.0)},
        {"8B", llama3_8b},
        {"8B_flex", block_causal(llama3_8b)},
        {"8B_varlen", block_causal(llama3_8b)},
        {"70B", llama3(8192, 80, 64, 8, 128256, 1.3, 4096)},
        {"405B", llama3(16384, 126, 128, 8, 128256, 1.2, 4096)}}},
      {"llama2",
       {{"7B", llama2(4096, 32, 32, {}, {}, 256)},
        {"13B", llama2(5120, 40, 40, {}, {}, 256)},
        {"70B", llama2(8192, 80, 64, 8, 1.3, 4096)}}},
  };
  return kFlavors;
}

std::vector<std::string> llama_flavor_names(const std::string& model) { return names_of(llama_flavors().at(model)); }

std::vector<Start> llama_starts(const std::string& model) {
  if (model == "llama2")
    return {{model, "7B", 6.7, 4096, 1 << 20, "3e-4", "selective", "H100", 80},
            {model, "13B", 13, 4096, 1 << 20, "3e-4", "full", "H100", 80},
            {model, "70B", 69, 4096, 1 << 21, "1.5e-4", "full", "H100", 80}};
  return {{model, "debugmodel", 0.006, 256, 4096, "4e-3", "none", "H100", 80},
          {model, "1B", 1.24, 8192, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "3B", 3.21, 8192, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "8B", 8, 8192, 1 << 20, "3e-4", "selective", "H100", 80},
          {model, "70B", 70.6, 8192, 1 << 21, "1.5e-4", "full", "H100", 80},
          {model, "405B", 406, 4096, 1 << 22, "8e-5", "full", "H200", 141}};
}

void check_llama_args(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  const config::ModelArgs& a = config.model.args;
  refuse_other_args(config, {"multiple_of", "ffn_dim_multiplier"}, errors);
  if (a.hidden_dim && (a.multiple_of || a.ffn_dim_multiplier)) {
    const std::string other = a.multiple_of ? "model.args.multiple_of" : "model.args.ffn_dim_multiplier";
    errors.push_back({"model.args.hidden_dim is the width of the feed-forward, so that " + other +
                          " has no effect; remove one of them",
                      {other, "model.args.hidden_dim"}});
  }
  check_decoder_args(config, errors);
  check_width_of_heads(config, errors);
}

LlamaArgs llama_args(const config::Model& model) {
  LlamaArgs args = model.from ? LlamaArgs() : flavor_of(model, llama_flavors().at(model.name));
  override_with(args.dim, model.args.dim);
  override_with(args.n_layers, model.args.n_layers);
  override_with(args.n_heads, model.args.n_heads);
  if (model.args.n_kv_heads) args.n_kv_heads = model.args.n_kv_heads;
  if (model.args.head_dim) args.width_of_head = model.args.head_dim;
  if (model.args.hidden_dim) args.width = model.args.hidden_dim;
  override_with(args.vocab_size, model.args.vocab_size);
  override_with(args.multiple_of, model.args.multiple_of);
  if (model.args.ffn_dim_multiplier) args.ffn_dim_multiplier = model.args.ffn_dim_multiplier;
  override_with(args.norm_eps, model.args.norm_eps);
  override_with(args.rope_theta, model.args.rope_theta);
  override_with(args.max_seq_len, model.args.max_seq_len);
  override_with(args.depth_init, model.args.depth_init);
  override_with(args.tied, model.args.enable_weight_tying);
  if (model.args.attn_mask_type) args.block_causal = *model.args.attn_mask_type == "block_causal";
  override_rope_scaling(args.rope_scaling, model.args.rope_scaling_args);
  if (!args.width_of_head) check_divided_width(args.decoder().block.attention);
  check_decoder_shape(args.decoder());
  return args;
}

HubDecoder llama_decoder(const config::Model& model) {
  const LlamaArgs args = llama_args(model);
  return {args.decoder(), args.max_seq_len};
}

}  // namespace titan::models
