#include "models/common/hub/hugging_face_config.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "config/keys/largest_sizes.h"
#include "models/common/hub/config_values.h"
#include "models/common/hub/float_text.h"
#include "models/common/hub/rope_config.h"

namespace titan::models {
namespace {

using Json = nlohmann::json;
using Faults = std::vector<std::string>;  // each says what was expected

constexpr std::int64_t kLongestSequence = std::numeric_limits<std::int32_t>::max();

void check_kind(const Json& json, const HubFamily& family, Faults& faults) {
  if (const Json* names = find(json, "architectures"); names && !names->empty() && names->at(0) != family.architecture)
    faults.push_back("architectures: expected \"" + family.architecture + "\", found " + names->at(0).dump());
  const std::string activation = value_or<std::string>(json, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    faults.push_back("hidden_act: expected \"silu\", found \"" + activation + "\"");
  for (const std::string& key : family.false_keys)
    if (value_or(json, key.c_str(), false)) faults.push_back(key + ": expected false, found true");
  for (const Json& type : value_or(json, "layer_types", Json::array()))
    if (type != "full_attention") {
      faults.push_back("layer_types: expected \"full_attention\" for all layers, found " + type.dump());
      break;
    }
  if (find(json, "quantization_config"))
    faults.push_back("quantization_config: expected none, found quantized weights; take the model's own");
}

void check_sizes(const Json& json, const HubDecoder& model, const HubFamily& family, Faults& faults) {
  const AttentionShape& a = model.shape.block.attention;
  struct Size {
    const char* key;
    std::int64_t size, most;
  };
  for (const auto& [key, size, most] : {Size{"hidden_size", a.dim, config::kLargestWidth},
                                        {"num_hidden_layers", model.shape.n_layers, config::kMostLayers},
                                        {"num_attention_heads", a.n_heads, config::kLargestWidth},
                                        {"num_key_value_heads", a.n_kv_heads, config::kLargestWidth},
                                        {"vocab_size", model.shape.vocab_size, config::kLargestVocabulary},
                                        {"intermediate_size", model.shape.block.hidden_dim, config::kLargestHidden},
                                        {"max_position_embeddings", model.max_seq_len, kLongestSequence}})
    if (size < 1 || size > most)
      faults.push_back(std::string(key) + ": expected 1 to " + std::to_string(most) + ", found " +
                       std::to_string(size));
  if (!faults.empty()) return;
  const bool says_head_dim = find(json, "head_dim") || family.head_dim;
  if (!says_head_dim && a.dim % a.n_heads != 0)
    faults.push_back("hidden_size: expected a multiple of num_attention_heads, or a head_dim");
  if (a.head_dim < 1 || a.head_dim % 2 != 0 || a.head_dim > config::kLargestWidth)
    faults.push_back("head_dim: expected an even number, 2 to " + std::to_string(config::kLargestWidth) + ", found " +
                     std::to_string(a.head_dim));
  if (a.n_heads % a.n_kv_heads != 0)
    faults.push_back("num_attention_heads: expected a multiple of num_key_value_heads");
  if (!faults.empty()) return;
  if (a.n_heads * a.head_dim > config::kLargestWidth) {
    faults.push_back("num_attention_heads * head_dim: expected at most " + std::to_string(config::kLargestWidth) +
                     ", found " + std::to_string(a.n_heads * a.head_dim));
  } else if (const auto count = stats_of(model.shape).num_parameters; count > config::kMostParameters) {
    faults.push_back("it has " + std::to_string(count) + " parameters; at most " +
                     std::to_string(config::kMostParameters) + " are taken");
  }
}

// A sliding window must cover the longest sequence.
void check_window(const Json& json, const HubDecoder& model, const HubFamily& family, Faults& faults) {
  if (!family.window) return;
  const bool is_given = json.contains("sliding_window");
  const std::int64_t window = is_given ? value_or<std::int64_t>(json, "sliding_window", 0) : *family.window;
  if (window > 0 && window < model.max_seq_len)
    faults.push_back(
        "sliding_window: expected null, or at least max_position_embeddings = " + std::to_string(model.max_seq_len) +
        ", found " + std::to_string(window) + (is_given ? "" : " (the default)"));
}

// Returns the interval of the blocks that do not rotate. transformers has a list of flags, one per layer, which must
// follow one interval here.
std::int64_t read_no_rope_interval(const Json& json, const HubFamily& family, std::int64_t n_layers, Faults& faults) {
  if (!family.no_rope_interval) return 0;
  const Json* flags = find(json, "no_rope_layers");
  if (!flags) return value_or(json, "no_rope_layer_interval", *family.no_rope_interval);
  if (n_layers < 1 || n_layers > config::kMostLayers) return 0;  // check_sizes() reports it
  if (static_cast<std::int64_t>(flags->size()) < n_layers) {
    faults.push_back("no_rope_layers: expected a number for each of the " + std::to_string(n_layers) +
                     " layers, found " + std::to_string(flags->size()));
    return 0;
  }
  std::vector<std::int64_t> rotates;
  for (const Json& flag : *flags) rotates.push_back(integer_at(flag, "no_rope_layers"));
  rotates.resize(static_cast<std::size_t>(n_layers));
  const std::int64_t interval = std::ranges::find(rotates, 0) - rotates.begin() + 1;
  for (std::int64_t i = 0; i < n_layers; ++i)
    if ((rotates[static_cast<std::size_t>(i)] == 0) != ((i + 1) % interval == 0)) {
      faults.push_back("no_rope_layers: expected a 0 in every so many layers and 1 in the others, found " +
                       flags->dump());
      return 0;
    }
  return interval > n_layers ? 0 : interval;
}

HubDecoder read(const Json& json, const HubFamily& family, Faults& faults) {
  const auto size = [&](const char* key) { return integer_at(json.at(key), key); };
  HubDecoder out{};
  AttentionShape& a = out.shape.block.attention;
  a.dim = size("hidden_size");
  out.shape.n_layers = size("num_hidden_layers");
  a.n_heads = size("num_attention_heads");
  const bool says_kv_heads = json.contains("num_key_value_heads");
  a.n_kv_heads = value_or(json, "num_key_value_heads", says_kv_heads ? a.n_heads : family.kv_heads.value_or(a.n_heads));
  a.head_dim = value_or(json, "head_dim", family.head_dim.value_or(a.n_heads > 0 ? a.dim / a.n_heads : 0));
  a.rotary_pairs = family.rotary_pairs;
  out.shape.vocab_size = size("vocab_size");
  out.shape.block.hidden_dim = size("intermediate_size");
  out.shape.block.norm_eps = value_or(json, "rms_norm_eps", 1e-6);
  if (family.has_qk_norm) a.qk_norm_eps = out.shape.block.norm_eps;
  a.qkv_bias = family.has_qkv_bias;
  out.max_seq_len = value_or(json, "max_position_embeddings", family.max_positions);
  out.shape.tied = value_or(json, "tie_word_embeddings", family.tied);
  out.shape.no_rope_interval = read_no_rope_interval(json, family, out.shape.n_layers, faults);
  check_kind(json, family, faults);
  check_window(json, out, family, faults);
  const RopeConfig rope = read_rope(json, out.max_seq_len, family.rope_theta, faults);
  out.shape.rope_theta = rope.theta;
  out.shape.rope_scaling = rope.scaling;
  check_sizes(json, out, family, faults);
  return out;
}

// Compares the values that the type of scaling reads.
template <typename Compare>
void compare_scaling(const RopeScaling& there, const RopeScaling& here, const Compare& compare) {
  const auto text = [](const std::optional<double>& factor) { return factor ? fmt::format("{}", *factor) : "None"; };
  const std::string table = "rope_scaling_args.";
  compare(table + "type", std::string(name_of(there.type)), std::string(name_of(here.type)));
  compare(table + "scaling_factor", there.scaling_factor, here.scaling_factor);
  if (there.type != RopeScalingType::kLinear)
    compare(table + "original_max_position_embeddings", there.original_max_position_embeddings,
            here.original_max_position_embeddings);
  if (there.type == RopeScalingType::kLlama3) {
    compare(table + "low_freq_factor", there.low_freq_factor, here.low_freq_factor);
    compare(table + "high_freq_factor", there.high_freq_factor, here.high_freq_factor);
  }
  if (there.type == RopeScalingType::kYarn) {
    compare(table + "beta_fast", there.beta_fast, here.beta_fast);
    compare(table + "beta_slow", there.beta_slow, here.beta_slow);
    compare(table + "attention_factor", text(there.attention_factor), text(here.attention_factor));
  }
}

std::string no_rope_layers(const DecoderShape& shape) {
  std::vector<std::string> flags;
  for (std::int64_t i = 0; i < shape.n_layers; ++i)
    flags.emplace_back(block_of(shape, i).attention.rotates ? "1" : "0");
  return "[" + join(flags, ", ") + "]";
}

}  // namespace

std::string architecture_of(const std::string& config_json) {
  try {
    return parse_json<Json>(config_json).at("architectures").at(0).get<std::string>();
  } catch (const Json::exception& error) {
    throw ConfigError(error.what());
  }
}

HubDecoder read_hub_config(const std::string& config_json, const std::string& what, const HubFamily& family) {
  try {
    Faults faults;
    const HubDecoder model = read(parse_json<Json>(config_json), family, faults);
    if (!faults.empty()) throw ConfigError(join(faults, "; "));
    return model;
  } catch (const std::exception& error) {
    throw ConfigError("error: " + what +
                      " describes no model that can be built here: " + json_error_text(error.what()));
  }
}

std::string hub_config(const HubDecoder& model, const HubFamily& family) {
  const DecoderShape& shape = model.shape;
  const AttentionShape& a = shape.block.attention;
  std::map<std::string, std::string> values = {{"architectures", "[\"" + family.architecture + "\"]"},
                                               {"head_dim", std::to_string(a.head_dim)},
                                               {"hidden_act", "\"silu\""},
                                               {"hidden_size", std::to_string(a.dim)},
                                               {"intermediate_size", std::to_string(shape.block.hidden_dim)},
                                               {"max_position_embeddings", std::to_string(model.max_seq_len)},
                                               {"model_type", "\"" + family.model_type + "\""},
                                               {"num_attention_heads", std::to_string(a.n_heads)},
                                               {"num_hidden_layers", std::to_string(shape.n_layers)},
                                               {"num_key_value_heads", std::to_string(a.n_kv_heads)},
                                               {"rms_norm_eps", float_text(shape.block.norm_eps)},
                                               {"rope_scaling", rope_scaling_json(shape.rope_scaling)},
                                               {"rope_theta", float_text(shape.rope_theta)},
                                               {"tie_word_embeddings", shape.tied ? "true" : "false"},
                                               {"vocab_size", std::to_string(shape.vocab_size)}};
  for (const std::string& key : family.false_keys) values[key] = "false";
  for (const std::string& key : family.null_keys) values[key] = "null";
  if (family.no_rope_interval) values["no_rope_layers"] = no_rope_layers(shape);
  std::vector<std::string> lines;
  for (const auto& [key, value] : values) lines.push_back("  \"" + key + "\": " + value);
  return "{\n" + join(lines, ",\n") + "\n}\n";
}

std::vector<HubDifference> hub_differences(const DecoderShape& theirs, const DecoderShape& ours) {
  std::vector<HubDifference> out;
  const auto compare = [&](const std::string& key, const auto& there, const auto& here) {
    if (there != here) out.push_back({"model.args." + key, fmt::format("{}", there), fmt::format("{}", here)});
  };
  const AttentionShape &there = theirs.block.attention, &here = ours.block.attention;
  compare("dim", there.dim, here.dim);
  compare("n_layers", theirs.n_layers, ours.n_layers);
  compare("n_heads", there.n_heads, here.n_heads);
  compare("n_kv_heads", there.n_kv_heads, here.n_kv_heads);
  compare("vocab_size", theirs.vocab_size, ours.vocab_size);
  compare("norm_eps", theirs.block.norm_eps, ours.block.norm_eps);
  compare("head_dim", there.head_dim, here.head_dim);
  compare("hidden_dim", theirs.block.hidden_dim, ours.block.hidden_dim);
  compare("qk_norm", there.qk_norm_eps.has_value(), here.qk_norm_eps.has_value());
  compare("qkv_bias", there.qkv_bias, here.qkv_bias);
  const auto interval = [](const DecoderShape& s) { return s.no_rope_interval > s.n_layers ? 0 : s.no_rope_interval; };
  compare("no_rope_layer_interval", interval(theirs), interval(ours));
  // Tied weights fill both parameters of a model that is not tied, but two tables do not fit into one.
  if (ours.tied) compare("enable_weight_tying", theirs.tied, ours.tied);
  compare("rope_theta", theirs.rope_theta, ours.rope_theta);
  // A factor of 1 scales nothing, so that a configuration can turn off the scaling of a flavor.
  const auto scales = [](const DecoderShape& s) { return s.rope_scaling && s.rope_scaling->scaling_factor != 1; };
  if (scales(theirs) != scales(ours)) {
    const auto text = [&](const DecoderShape& s) {
      return scales(s) ? fmt::format("{}", s.rope_scaling->scaling_factor) : "1 (no scaling)";
    };
    out.push_back({"model.args.rope_scaling_args.scaling_factor", text(theirs), text(ours)});
  } else if (scales(theirs)) {
    compare_scaling(*theirs.rope_scaling, *ours.rope_scaling, compare);
  }
  return out;
}

}  // namespace titan::models
