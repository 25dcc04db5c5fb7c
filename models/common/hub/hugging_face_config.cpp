#include "models/common/hub/hugging_face_config.h"

#include <spdlog/fmt/fmt.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_error.h"
#include "base/text.h"

namespace titan::models {
namespace {

using Json = nlohmann::json;
using Faults = std::vector<std::string>;  // each says what was expected

// Returns a float as Python writes it: transformers rejects integers for float keys.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// Returns the value of a key, or null if it is missing or JSON null.
const Json* find(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

template <typename T>
T value_or(const Json& json, const char* key, T otherwise) {
  const Json* found = find(json, key);
  return found ? found->get<T>() : otherwise;
}

double number_of(const Json& table, const char* key) {
  const Json* found = find(table, key);
  if (!found || !found->is_number())
    throw ConfigError(std::string(key) + " of the rotary scaling: expected a number, found " +
                      (found ? found->dump() : "nothing"));
  return found->get<double>();
}

void check_kind(const Json& json, const HubFamily& family, Faults& faults) {
  const std::string activation = value_or<std::string>(json, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    faults.push_back("hidden_act: expected \"silu\", found \"" + activation + "\"");
  for (const std::string& key : family.false_keys)
    if (value_or(json, key.c_str(), false)) faults.push_back(key + ": expected false, found true");
  if (find(json, "quantization_config"))
    faults.push_back("quantization_config: expected none, found quantized weights; take the model's own");
}

// Reads both generations of the format and mixtures of them, as transformers 5 does. The table is rope_scaling, or
// rope_parameters if rope_scaling is missing or empty. The base is in the table, else at the top level.
void read_rope(const Json& json, const HubFamily& family, HubDecoder& out, Faults& faults) {
  static const Json kNone = Json::object();
  const Json* scaling = find(json, "rope_scaling");
  const Json* parameters = find(json, "rope_parameters");
  const Json& rope = scaling && !scaling->empty() ? *scaling : parameters ? *parameters : kNone;
  if (!rope.is_object()) throw ConfigError("rope_scaling: expected a table, found " + rope.dump());
  for (const auto& [key, value] : rope.items())
    if (value.is_object()) {
      faults.push_back("rope_parameters: expected one rotary embedding for all layers, found a table \"" + key + "\"");
      return;
    }
  out.shape.rope_theta = value_or(rope, "rope_theta", value_or(json, "rope_theta", 10000.0));
  const double rotated = value_or(rope, "partial_rotary_factor", value_or(json, "partial_rotary_factor", 1.0));
  if (rotated != 1) faults.push_back("partial_rotary_factor: expected 1, found " + std::to_string(rotated));
  const auto kind = value_or<std::string>(rope, "rope_type", value_or<std::string>(rope, "type", "default"));
  if (kind == "llama3" && family.may_scale_rotary) {
    const auto original = value_or(rope, "original_max_position_embeddings", out.max_seq_len);
    out.shape.rope_scaling = RopeScaling{number_of(rope, "factor"), number_of(rope, "low_freq_factor"),
                                         number_of(rope, "high_freq_factor"), original};
  } else if (kind != "default") {
    faults.push_back(std::string("rope_type: expected \"default\"") +
                     (family.may_scale_rotary ? " or \"llama3\"" : "") + ", found \"" + kind + "\"");
  }
}

void check_sizes(const Json& json, const HubDecoder& model, const HubFamily& family, Faults& faults) {
  const AttentionShape& a = model.shape.block.attention;
  for (const auto& [key, size] :
       {std::pair("hidden_size", a.dim), std::pair("num_hidden_layers", model.shape.n_layers),
        std::pair("num_attention_heads", a.n_heads), std::pair("num_key_value_heads", a.n_kv_heads),
        std::pair("vocab_size", model.shape.vocab_size), std::pair("intermediate_size", model.shape.block.hidden_dim),
        std::pair("max_position_embeddings", model.max_seq_len),
        std::pair("head_dim", family.head_dim ? a.head_dim : 1)})
    if (size < 1) faults.push_back(std::string(key) + ": expected at least 1, found " + std::to_string(size));
  if (!faults.empty()) return;
  const bool is_free = family.head_dim.has_value();
  if (is_free && a.head_dim % 2 != 0)
    faults.push_back("head_dim: expected an even number, found " + std::to_string(a.head_dim));
  if ((!is_free && (a.dim % a.n_heads != 0 || a.head_dim % 2 != 0)) || a.n_heads % a.n_kv_heads != 0)
    faults.push_back(
        "hidden_size, num_attention_heads and num_key_value_heads: expected heads of one even size, the "
        "query heads a multiple of the key heads");
  if (const auto head = value_or(json, "head_dim", a.head_dim); faults.empty() && head != a.head_dim)
    faults.push_back("head_dim: expected hidden_size / num_attention_heads = " + std::to_string(a.head_dim) +
                     ", found " + std::to_string(head));
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

HubDecoder read(const Json& json, const HubFamily& family, Faults& faults) {
  const auto size = [&](const char* key) { return json.at(key).get<std::int64_t>(); };
  HubDecoder out{};
  AttentionShape& a = out.shape.block.attention;
  a.dim = size("hidden_size");
  out.shape.n_layers = size("num_hidden_layers");
  a.n_heads = size("num_attention_heads");
  const bool says_kv_heads = json.contains("num_key_value_heads");
  a.n_kv_heads = value_or(json, "num_key_value_heads", says_kv_heads ? a.n_heads : family.kv_heads.value_or(a.n_heads));
  a.head_dim = family.head_dim ? value_or(json, "head_dim", *family.head_dim) : a.n_heads > 0 ? a.dim / a.n_heads : 0;
  a.rotary_pairs = family.rotary_pairs;
  out.shape.vocab_size = size("vocab_size");
  out.shape.block.hidden_dim = size("intermediate_size");
  out.shape.block.norm_eps = value_or(json, "rms_norm_eps", 1e-6);
  if (family.has_qk_norm) a.qk_norm_eps = out.shape.block.norm_eps;
  out.max_seq_len = value_or(json, "max_position_embeddings", family.max_positions);
  out.shape.tied = value_or(json, "tie_word_embeddings", false);
  check_kind(json, family, faults);
  check_window(json, out, family, faults);
  read_rope(json, family, out, faults);
  check_sizes(json, out, family, faults);
  return out;
}

}  // namespace

std::string architecture_of(const std::string& config_json) {
  try {
    return Json::parse(config_json).at("architectures").at(0).get<std::string>();
  } catch (const Json::exception& error) {
    throw ConfigError(error.what());
  }
}

HubDecoder read_hub_config(const std::string& config_json, const std::string& what, const HubFamily& family) {
  try {
    Faults faults;
    const HubDecoder model = read(Json::parse(config_json), family, faults);
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
  const auto scaling = shape.rope_scaling ? fmt::format(R"({{
    "factor": {},
    "high_freq_factor": {},
    "low_freq_factor": {},
    "original_max_position_embeddings": {},
    "rope_type": "llama3"
  }})",
                                                        float_text(shape.rope_scaling->scaling_factor),
                                                        float_text(shape.rope_scaling->high_freq_factor),
                                                        float_text(shape.rope_scaling->low_freq_factor),
                                                        shape.rope_scaling->original_max_position_embeddings)
                                          : "null";
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
                                               {"rope_scaling", scaling},
                                               {"rope_theta", float_text(shape.rope_theta)},
                                               {"tie_word_embeddings", shape.tied ? "true" : "false"},
                                               {"vocab_size", std::to_string(shape.vocab_size)}};
  for (const std::string& key : family.false_keys) values[key] = "false";
  std::vector<std::string> lines;
  for (const auto& [key, value] : values) lines.push_back("  \"" + key + "\": " + value);
  return "{\n" + join(lines, ",\n") + "\n}\n";
}

std::vector<HubDifference> hub_differences(const DecoderShape& theirs, const DecoderShape& ours,
                                           const HubFamily& family) {
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
  if (family.head_dim) compare("head_dim", there.head_dim, here.head_dim);
  if (family.has_qk_norm) compare("qk_norm", there.qk_norm_eps.has_value(), here.qk_norm_eps.has_value());
  // Tied weights fill both parameters of a model that is not tied, but two tables do not fit into one.
  if (ours.tied) compare("enable_weight_tying", theirs.tied, ours.tied);
  compare("rope_theta", theirs.rope_theta, ours.rope_theta);
  if (theirs.block.hidden_dim != ours.block.hidden_dim)
    out.push_back({"model.args." + family.hidden_dim_key,
                   "a feed-forward width of " + std::to_string(theirs.block.hidden_dim),
                   "one of " + std::to_string(ours.block.hidden_dim)});
  // A factor of 1 scales nothing, so that a configuration can turn off the scaling of a flavor.
  const auto scales = [](const DecoderShape& s) { return s.rope_scaling && s.rope_scaling->scaling_factor != 1; };
  if (scales(theirs) != scales(ours)) {
    const auto text = [&](const DecoderShape& s) {
      return scales(s) ? fmt::format("{}", s.rope_scaling->scaling_factor) : "1 (no scaling)";
    };
    out.push_back({"model.args.rope_scaling_args.scaling_factor", text(theirs), text(ours)});
  } else if (scales(theirs)) {
    const auto &one = *theirs.rope_scaling, &other = *ours.rope_scaling;
    compare("rope_scaling_args.scaling_factor", one.scaling_factor, other.scaling_factor);
    compare("rope_scaling_args.low_freq_factor", one.low_freq_factor, other.low_freq_factor);
    compare("rope_scaling_args.high_freq_factor", one.high_freq_factor, other.high_freq_factor);
    compare("rope_scaling_args.original_max_position_embeddings", one.original_max_position_embeddings,
            other.original_max_position_embeddings);
  }
  return out;
}

}  // namespace titan::models
