#include "models/llama3/llama3.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "nn/documents.h"
#include "nn/ops/cross_entropy.h"
#include "nn/ops/rope.h"

namespace titan::models {

at::Tensor Output::forward(const nn::Tensors& inputs) {
  if (inputs.size() == 1) return nn::Linear::forward(inputs);
  return nn::linear_cross_entropy_sum(inputs[0], weight, inputs[1]);
}

Llama::Llama(const LlamaArgs& args, std::int64_t seq_len, std::optional<std::int64_t> document_end)
    : args_(args), seq_len_(seq_len), document_end_(document_end) {
  child("tok_embeddings", tok_embeddings_, std::make_shared<nn::Embedding>(args.vocab_size, args.dim));
  child("layers", layers_, std::make_shared<nn::ModuleList>());
  for (std::int64_t i = 0; i < args.n_layers; ++i) layers_->append(std::make_shared<TransformerBlock>(args.block()));
  child("norm", norm_, std::make_shared<nn::RMSNorm>(args.dim, args.norm_eps));
  child("output", output_, std::make_shared<Output>(args.dim, args.vocab_size));
  if (args.tied) tie("output.weight", "tok_embeddings.weight");
}

at::Tensor Llama::forward(const nn::Tensors& inputs) {
  const auto& tokens = inputs[0];
  if (cache_) return continue_cached(tokens);
  nn::Tensors state = {(*tok_embeddings_)(tokens.to(freqs_cis_.device(), /*non_blocking=*/true)), freqs_cis_};
  if (args_.block_causal) {
    state.push_back(nn::document_lengths(tokens, document_end_.value()));
    const auto device = freqs_cis_.device();
    if (!device.is_cpu() && !device.is_meta()) state.push_back(nn::document_bounds(state.back(), device));
  }
  for (const auto& [name, layer] : layers_->children()) state[0] = (*layer)(state);
  nn::Tensors output_inputs = {(*norm_)(state[0])};
  if (inputs.size() > 1) output_inputs.push_back(inputs[1]);
  return (*output_)(std::move(output_inputs));
}

void Llama::use_cache(nn::KvCache* cache) {
  cache_ = cache;
  for (std::size_t i = 0; i < layers_->size(); ++i)
    dynamic_cast<TransformerBlock&>((*layers_)[i]).attention().use_cache(cache, i);
}

at::Tensor Llama::continue_cached(const at::Tensor& tokens) {
  const auto T = tokens.size(1), seen = cache_->size();
  TITAN_CHECK(seen + T <= seq_len_, "the rotary table has " + std::to_string(seq_len_) + " rows, position " +
                                        std::to_string(seen + T - 1) + " is beyond it");
  nn::Tensors state = {(*tok_embeddings_)(tokens), freqs_cis_.slice(0, seen, seen + T)};  // [B, T, D], [T, E / 2]
  auto first_visible = cache_->first_visible();
  if (args_.block_causal) {
    TITAN_CHECK(tokens.size(0) == 1,
                "with block-causal attention a cache holds one row: documents end at other places");
    const auto lengths = nn::document_lengths(tokens, document_end_.value());
    if (lengths.size(0) > 1) first_visible = seen + T - lengths[-1].item<std::int64_t>();
    // Later tokens do not attend to the token that ends a document.
    if (tokens[0][-1].item<std::int64_t>() == document_end_) first_visible = seen + T;
    if (seen == 0) state.push_back(lengths);
  }
  for (const auto& [name, layer] : layers_->children()) state[0] = (*layer)(state);
  cache_->finish_call(T, first_visible);
  return (*output_)((*norm_)(state[0]).narrow(1, T - 1, 1));
}

// Draws in TorchTitan's order, which is the order of the parameters. The order determines the weights. A tied output
// projection is drawn over the embedding.
void Llama::init_weights(nn::Initializer& initializer, at::Device buffer_device) {
  constexpr double kStd = 0.02;
  freqs_cis_ =
      nn::precompute_freqs_cis(args_.head_dim(), seq_len_, args_.rope_theta, args_.rope_scaling, buffer_device);
  std::int64_t layer = 0;
  for (const auto& parameter : named_parameters(/*remove_duplicate=*/false)) {
    const std::string& fqn = parameter.fqn;
    const auto ends_with = [&](std::string_view suffix) { return fqn.ends_with(suffix); };
    if (fqn.starts_with("layers.")) layer = std::stoll(fqn.substr(7));
    if (ends_with("norm.weight")) {
      initializer.ones(parameter);
    } else if (fqn == "tok_embeddings.weight") {
      initializer.normal(parameter, 0.0, 1.0);
    } else if (fqn == "output.weight") {
      const double std = std::pow(static_cast<double>(args_.dim), -0.5);
      initializer.trunc_normal(parameter, 0.0, std, -3 * std, 3 * std);
    } else if (ends_with("wo.weight") || ends_with("w2.weight") || ends_with("w3.weight")) {
      const double depth = static_cast<double>(args_.depth_init ? layer + 1 : args_.n_layers);
      initializer.trunc_normal(parameter, 0.0, kStd / std::sqrt(2 * depth), -2.0, 2.0);
    } else {
      initializer.trunc_normal(parameter, 0.0, kStd, -2.0, 2.0);
    }
  }
}

}  // namespace titan::models
