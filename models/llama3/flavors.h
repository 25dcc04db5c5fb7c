// Shapes of the Llama family: Llama 2 and Llama 3 are one architecture with different sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "facts/rope_scaling.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

struct LlamaArgs {
  std::int64_t dim = 4096;
  std::int64_t n_layers = 32;
  std::int64_t n_heads = 32;
  std::optional<std::int64_t> n_kv_heads;  // nullopt: n_heads
  std::int64_t vocab_size = 128256;
  std::int64_t multiple_of = 256;  // the feed-forward width is rounded up to it
  std::optional<double> ffn_dim_multiplier = {};
  std::optional<std::int64_t> width = {};          // of the feed-forward; nullopt: by the two values above
  std::optional<std::int64_t> width_of_head = {};  // nullopt: dim / n_heads
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling = RopeScaling{};  // nullopt in Llama 2
  std::int64_t max_seq_len = 131072;
  bool depth_init = true;
  bool tied = false;          // the output projection is the embedding
  bool block_causal = false;  // a token attends only to its own document, not to all earlier tokens of its row

  std::int64_t kv_heads() const { return n_kv_heads.value_or(n_heads); }
  std::int64_t head_dim() const { return width_of_head.value_or(dim / n_heads); }
  std::int64_t hidden_dim() const;
  DecoderShape decoder() const;
};

// Returns model name ("llama3", "llama2") -> flavor name -> shape. In TorchTitan, _flex and _varlen choose the kernel
// of block-causal attention; here both use the same one.
const std::map<std::string, std::map<std::string, LlamaArgs>>& llama_flavors();

// Returns the flavors of a model of the family, by name.
std::vector<std::string> llama_flavor_names(const std::string& model);

// Returns values to start from. Learning rates, lengths and batches are from the models' papers, with batches at the
// small end. 405B has shorter sequences: gathering and reducing one of its layers leaves little memory for activations,
// at any number of ranks.
std::vector<Start> llama_starts(const std::string& model);

// Appends the keys of [model.args] that Llama does not have, and contradictions among the others.
void check_llama_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Returns the flavor of [model] with the overrides of [model.args]. Throws ConfigError for an unknown flavor or an
// invalid shape.
LlamaArgs llama_args(const config::Model& model);
// Returns the same as sizes of a decoder.
HubDecoder llama_decoder(const config::Model& model);

}  // namespace titan::models
