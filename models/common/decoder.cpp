#include "models/common/decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "facts/adapter_names.h"
#include "models/common/transformer_block.h"
#include "nn/documents.h"
#include "nn/ops/cross_entropy.h"
#include "nn/ops/rope.h"

namespace titan::models {
namespace {

constexpr const char *kEmbedding = "tok_embeddings.weight", *kOutput = "output.weight";

constexpr std::string_view kBlock = "layers.";

// Drops the children of `module` whose names below the model are not in `kept`.
void drop_others(nn::Module& module, const std::string& prefix, const std::set<std::string>& kept) {
  const auto children = module.children();  // a copy: dropping changes the list
  for (const auto& [name, child] : children)
    if (!child->is_container() && !kept.contains(prefix + name)) module.drop_child(name);
}

}  // namespace

at::Tensor Output::forward(const nn::Tensors& inputs) {
  if (inputs.size() == 1) return nn::Linear::forward(inputs);
  const auto row_weights = inputs.size() > 2 ? nn::row_weights_of(inputs[2], weight.device()) : at::Tensor();
  return nn::linear_cross_entropy_sum(inputs[0], weight, inputs[1], row_weights);
}

Decoder::Decoder(const DecoderShape& shape, std::int64_t seq_len, std::optional<std::int64_t> document_end)
    : shape_(shape), seq_len_(seq_len), document_end_(document_end) {
  const std::int64_t dim = shape.block.attention.dim;
  child("tok_embeddings", tok_embeddings_, std::make_shared<nn::Embedding>(shape.vocab_size, dim));
  child("layers", layers_, std::make_shared<nn::ModuleList>());
  for (std::int64_t i = 0; i < shape.n_layers; ++i)
    layers_->append(std::make_shared<TransformerBlock>(block_of(shape, i)));
  child("norm", norm_, std::make_shared<nn::RMSNorm>(dim, shape.block.norm_eps));
  child("output", output_, std::make_shared<Output>(dim, shape.vocab_size));
  if (shape.tied) tie(kOutput, kEmbedding);
  for (const auto& parameter : named_parameters(/*remove_duplicate=*/false))
    drawn_.push_back({parameter.fqn, parameter.tensor().sizes().vec()});
}

// Returns what each block gets: x [B, T, D], the rotary factors of its tokens, and their documents if the input or
// block-causal attention separates them.
nn::Tensors Decoder::block_inputs(const nn::Tensors& inputs, const Stage& stage) {
  const at::Tensor& tokens = inputs[0];  // or hidden states
  const at::Device device = freqs_cis_.device();
  const bool has_positions = inputs.size() > 2 && inputs[2].defined();
  if (has_positions && inputs[2].is_cpu()) {
    const auto last = inputs[2].max().item<std::int64_t>();
    TITAN_CHECK(last < seq_len_, "the rotary table has " + std::to_string(seq_len_) + " rows, position " +
                                     std::to_string(last) + " is beyond it");
  }
  nn::Tensors state = {
      stage.has_embedding ? (*tok_embeddings_)(tokens.to(device, /*non_blocking=*/true)) : tokens,
      has_positions ? freqs_cis_.index_select(0, inputs[2].to(device, /*non_blocking=*/true)) : freqs_cis_};
  const at::Tensor documents = inputs.size() > 3 ? inputs[3] : at::Tensor();
  // A single token has nothing but its own document.
  if (documents.defined() || (shape_.block_causal && tokens.size(1) > 1)) {
    const auto end = shape_.block_causal ? std::optional(document_end_.value()) : std::nullopt;
    state.push_back(nn::document_lengths(stage.has_embedding ? tokens : documents, end, documents));
    if (!device.is_cpu() && !device.is_meta()) state.push_back(nn::document_bounds(state.back(), device));
  }
  return state;
}

void Decoder::keep_stages(const std::vector<pipeline::StageModules>& stages) {
  std::set<std::string> kept;
  for (const auto& stage : stages) kept.insert(stage.begin(), stage.end());
  drop_others(*this, "", kept);
  drop_others(*layers_, std::string(kBlock), kept);

  std::size_t next_block = 0;
  for (const auto& stage : stages) {
    const auto has = [&](const char* name) { return std::ranges::count(stage, name) > 0; };
    const auto num_blocks = static_cast<std::size_t>(
        std::ranges::count_if(stage, [](const std::string& name) { return name.starts_with(kBlock); }));
    stages_.push_back({next_block, next_block + num_blocks, has("tok_embeddings"), has("norm"), has("output")});
    next_block += num_blocks;
  }
  TITAN_CHECK(next_block == layers_->size(), "a stage names blocks that the model does not have");
}

Decoder::Stage Decoder::stage_of(const nn::Tensors& inputs) const {
  if (inputs.size() > 5 && inputs[5].defined())
    return stages_.at(static_cast<std::size_t>(inputs[5].item<std::int64_t>()));
  TITAN_CHECK(stages_.empty(), "this rank has stages of the model, which are called one by one");
  return {0, layers_ ? layers_->size() : 0, tok_embeddings_ != nullptr, norm_ != nullptr, output_ != nullptr};
}

at::Tensor Decoder::forward(const nn::Tensors& inputs) {
  const Stage stage = stage_of(inputs);
  nn::Tensors state = block_inputs(inputs, stage);
  for (std::size_t i = stage.first_block; i < stage.end_block; ++i) state[0] = (*layers_)[i](state);
  if (stage.has_norm) state[0] = (*norm_)(state[0]);
  if (!stage.has_output) return state[0];
  nn::Tensors output_inputs = {state[0]};
  if (inputs.size() > 1 && inputs[1].defined()) output_inputs.push_back(inputs[1]);
  if (inputs.size() > 4 && inputs[4].defined()) output_inputs.push_back(inputs[4]);
  return (*output_)(std::move(output_inputs));
}

nn::Module& Decoder::output() {
  TITAN_CHECK(output_, "this rank does not have the output projection");
  return *output_;
}

std::optional<std::int64_t> Decoder::document_end() const { return shape_.block_causal ? document_end_ : std::nullopt; }

// Draws in TorchTitan's order, which is the order of the parameters. The order determines the weights. A tied output
// projection is drawn over the embedding, and a part that another rank has only advances the random numbers. It leaves
// adapters to nn::draw_adapters().
void Decoder::init_weights(nn::Initializer& initializer, at::Device buffer_device) {
  freqs_cis_ = nn::precompute_freqs_cis(shape_.block.attention.head_dim, seq_len_, shape_.rope_theta,
                                        shape_.rope_scaling, buffer_device);
  std::map<std::string, nn::NamedParameter> own;
  for (const auto& parameter : named_parameters(/*remove_duplicate=*/false)) own.emplace(parameter.fqn, parameter);
  std::set<std::string> known;
  for (const auto& [fqn, shape] : drawn_) {
    known.insert(fqn);
    nn::InitTarget target(fqn, shape);
    if (own.contains(fqn)) target = own.at(fqn);
    // The embedding alone has the values that the output projection of the full model gives it.
    const bool is_tied = shape_.tied && fqn == kOutput && !own.contains(kOutput) && own.contains(kEmbedding);
    if (is_tied) target = own.at(kEmbedding);
    target.fqn = fqn;
    init_one(initializer, target);
  }
  for (const auto& [fqn, parameter] : own)
    if (!known.contains(fqn) && !is_adapter_name(fqn))
      throw InternalError(fqn + " has no initial values: a pass added it to the model");
}

void Decoder::init_one(nn::Initializer& initializer, const nn::InitTarget& target) const {
  constexpr double kStd = 0.02;
  const std::string& fqn = target.fqn;
  const auto ends_with = [&](std::string_view suffix) { return fqn.ends_with(suffix); };
  if (ends_with("norm.weight")) {
    initializer.ones(target);
  } else if (ends_with(".bias")) {
    initializer.zeros(target);
  } else if (fqn == kEmbedding) {
    initializer.normal(target, 0.0, 1.0);
  } else if (fqn == kOutput) {
    const double std = std::pow(static_cast<double>(shape_.block.attention.dim), -0.5);
    initializer.trunc_normal(target, 0.0, std, -3 * std, 3 * std);
  } else if (ends_with("wo.weight") || ends_with("w2.weight") || ends_with("w3.weight")) {
    const std::int64_t layer = std::stoll(fqn.substr(std::string_view("layers.").size()));
    const double depth = static_cast<double>(shape_.depth_init ? layer + 1 : shape_.n_layers);
    initializer.trunc_normal(target, 0.0, kStd / std::sqrt(2 * depth), -2.0, 2.0);
  } else {
    initializer.trunc_normal(target, 0.0, kStd, -2.0, 2.0);
  }
}

}  // namespace titan::models
