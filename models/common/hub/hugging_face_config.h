// Reads and writes config.json of Hugging Face's transformers for decoders, of whatever family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "facts/model_naming.h"
#include "models/common/shapes.h"

namespace titan::models {

// Describes how config.json of one family of decoders differs from that of others, with transformers' defaults for
// missing keys.
struct HubFamily {
  std::string architecture;             // "LlamaForCausalLM"
  std::string model_type;               // "llama"
  std::vector<std::string> false_keys;  // features that this program does not have; a config.json must have false
  // Keys without a value, written because transformers' defaults are ids of one vocabulary.
  std::vector<std::string> null_keys = {};
  bool has_qk_norm = false;   // each head of queries and keys is normalized
  bool has_qkv_bias = false;  // the projections to queries, keys and values add a bias
  bool tied = false;          // default of tie_word_embeddings
  RotaryPairs rotary_pairs = RotaryPairs::kNeighbors;
  double rope_theta = 10000;
  std::optional<std::int64_t> kv_heads = {};  // nullopt: as many as query heads
  std::optional<std::int64_t> head_dim = {};  // nullopt: hidden_size / num_attention_heads
  // Interval of the blocks without a rotary embedding; nullopt: the family has no such blocks.
  std::optional<std::int64_t> no_rope_interval = {};
  std::int64_t max_positions = 2048;
  std::optional<std::int64_t> window = {};  // nullopt: the family has no sliding window
};

// The model of a config.json.
struct HubDecoder {
  DecoderShape shape;
  std::int64_t max_seq_len;

  bool operator==(const HubDecoder&) const = default;
};

// Returns the architecture, "LlamaForCausalLM". Throws ConfigError, without a file name, if the text is not JSON or
// names no architecture.
std::string architecture_of(const std::string& config_json);

// Returns the config.json of a model of this shape.
std::string hub_config(const HubDecoder& model, const HubFamily& family);

// Returns the model that a config.json describes. `what` names the file in errors. Throws ConfigError for a missing
// size and for features that this program does not have (other biases, activations and rotary scalings, a sliding
// window below the longest sequence).
HubDecoder read_hub_config(const std::string& config_json, const std::string& what, const HubFamily& family);

// Returns the values that differ and change the model's results, each with our key.
std::vector<HubDifference> hub_differences(const DecoderShape& theirs, const DecoderShape& ours);

}  // namespace titan::models
