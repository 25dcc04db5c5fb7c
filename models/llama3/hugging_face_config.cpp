#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_error.h"
#include "base/text.h"
#include "models/llama3/naming.h"

namespace titan::models {
namespace {

using Json = nlohmann::json;

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

constexpr const char* kMistralArchitecture = "MistralForCausalLM";

double number_of(const Json& table, const char* key) {
  const Json* found = find(table, key);
  if (!found || !found->is_number())
    throw ConfigError(std::string(key) + " of the rotary scaling: expected a number, found " +
                      (found ? found->dump() : "nothing"));
  return found->get<double>();
}

// transformers' defaults for missing keys that differ between architectures.
struct Defaults {
  std::int64_t kv_heads;
  std::int64_t max_positions;
};

bool is_mistral(const Json& json) {
  const Json* names = find(json, "architectures");
  return names && names->is_array() && !names->empty() && names->front() == kMistralArchitecture;
}

Defaults defaults_of(const Json& json, std::int64_t heads) {
  return is_mistral(json) ? Defaults{json.contains("num_key_value_heads") ? heads : 8, 4096 * 32}
                          : Defaults{heads, 2048};
}

// Appends a fault for each setting that our Llama does not support. A fault says what was expected.
void check_kind(const Json& json, std::vector<std::string>& faults) {
  const std::string activation = value_or<std::string>(json, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    faults.push_back("hidden_act: expected \"silu\", found \"" + activation + "\"");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (value_or(json, key, false)) faults.push_back(std::string(key) + ": expected false, found true");
  if (find(json, "quantization_config"))
    faults.push_back("quantization_config: expected none, found quantized weights; take the model's own");
}

// Checks that a Mistral is a Llama: its sliding window must cover the longest sequence.
void check_window(const Json& json, const LlamaArgs& args, std::vector<std::string>& faults) {
  if (!is_mistral(json)) return;
  const std::int64_t window =
      json.contains("sliding_window") ? value_or<std::int64_t>(json, "sliding_window", 0) : 4096;
  if (window > 0 && window < args.max_seq_len)
    faults.push_back(
        "sliding_window: expected null, or at least max_position_embeddings = " + std::to_string(args.max_seq_len) +
        ", found " + std::to_string(window) + (json.contains("sliding_window") ? "" : " (the default)"));
}

// Reads both generations of the format and mixtures of them, as transformers 5 does. The table is rope_scaling, or
// rope_parameters if rope_scaling is missing or empty. The base is in the table, else at the top level.
void read_rope(const Json& json, LlamaArgs& args, std::vector<std::string>& faults) {
  static const Json kNone = Json::object();
  const Json* scaling = find(json, "rope_scaling");
  const Json* parameters = find(json, "rope_parameters");
  const Json& rope = scaling && !scaling->empty() ? *scaling : parameters ? *parameters : kNone;
  args.rope_scaling = std::nullopt;
  if (!rope.is_object()) throw ConfigError("rope_scaling: expected a table, found " + rope.dump());
  for (const auto& [key, value] : rope.items())
    if (value.is_object()) {
      faults.push_back("rope_parameters: expected one rotary embedding for all layers, found a table \"" + key + "\"");
      return;
    }
  args.rope_theta = value_or(rope, "rope_theta", value_or(json, "rope_theta", 10000.0));
  const double rotated = value_or(rope, "partial_rotary_factor", value_or(json, "partial_rotary_factor", 1.0));
  if (rotated != 1) faults.push_back("partial_rotary_factor: expected 1, found " + std::to_string(rotated));
  const auto kind = value_or<std::string>(rope, "rope_type", value_or<std::string>(rope, "type", "default"));
  if (kind == "llama3") {
    const auto original = value_or(rope, "original_max_position_embeddings", args.max_seq_len);
    args.rope_scaling = RopeScaling{number_of(rope, "factor"), number_of(rope, "low_freq_factor"),
                                    number_of(rope, "high_freq_factor"), original};
  } else if (kind != "default") {
    faults.push_back("rope_type: expected \"default\" or \"llama3\", found \"" + kind + "\"");
  }
}

void check_sizes(const Json& json, const LlamaArgs& args, std::vector<std::string>& faults) {
  for (const auto& [key, size] :
       {std::pair("hidden_size", args.dim), std::pair("num_hidden_layers", args.n_layers),
        std::pair("num_attention_heads", args.n_heads), std::pair("num_key_value_heads", args.kv_heads()),
        std::pair("vocab_size", args.vocab_size), std::pair("intermediate_size", args.hidden_dim()),
        std::pair("max_position_embeddings", args.max_seq_len)})
    if (size < 1) faults.push_back(std::string(key) + ": expected at least 1, found " + std::to_string(size));
  if (!faults.empty()) return;
  if (args.dim % args.n_heads != 0 || args.head_dim() % 2 != 0 || args.n_heads % args.kv_heads() != 0)
    faults.push_back(
        "hidden_size, num_attention_heads and num_key_value_heads: expected heads of one even size, the "
        "query heads a multiple of the key heads");
  if (const auto head = value_or(json, "head_dim", args.head_dim()); faults.empty() && head != args.head_dim())
    faults.push_back("head_dim: expected hidden_size / num_attention_heads = " + std::to_string(args.head_dim()) +
                     ", found " + std::to_string(head));
}

}  // namespace

LlamaArgs llama_args_from_hugging_face(const std::string& config_json, const std::string& what) {
  try {
    const Json json = Json::parse(config_json);
    LlamaArgs args;
    args.dim = json.at("hidden_size").get<std::int64_t>();
    args.n_layers = json.at("num_hidden_layers").get<std::int64_t>();
    args.n_heads = json.at("num_attention_heads").get<std::int64_t>();
    const Defaults defaults = defaults_of(json, args.n_heads);
    args.n_kv_heads = value_or(json, "num_key_value_heads", defaults.kv_heads);
    args.vocab_size = json.at("vocab_size").get<std::int64_t>();
    args.ffn_dim = json.at("intermediate_size").get<std::int64_t>();
    args.norm_eps = value_or(json, "rms_norm_eps", 1e-6);
    args.max_seq_len = value_or(json, "max_position_embeddings", defaults.max_positions);
    args.tied = value_or(json, "tie_word_embeddings", false);
    std::vector<std::string> faults;
    check_kind(json, faults);
    check_window(json, args, faults);
    read_rope(json, args, faults);
    check_sizes(json, args, faults);
    if (!faults.empty()) throw ConfigError(join(faults, "; "));
    return args;
  } catch (const std::exception& error) {
    throw ConfigError("error: " + what +
                      " describes no model that can be built here: " + json_error_text(error.what()));
  }
}

std::vector<HubDifference> llama_differences(const LlamaArgs& theirs, const LlamaArgs& ours) {
  std::vector<HubDifference> out;
  const auto compare = [&](const std::string& key, const auto& there, const auto& here) {
    if (there != here) out.push_back({"model.args." + key, fmt::format("{}", there), fmt::format("{}", here)});
  };
  compare("dim", theirs.dim, ours.dim);
  compare("n_layers", theirs.n_layers, ours.n_layers);
  compare("n_heads", theirs.n_heads, ours.n_heads);
  compare("n_kv_heads", theirs.kv_heads(), ours.kv_heads());
  compare("vocab_size", theirs.vocab_size, ours.vocab_size);
  compare("norm_eps", theirs.norm_eps, ours.norm_eps);
  // Tied weights fill both parameters of a model that is not tied, but two tables do not fit into one.
  if (ours.tied) compare("enable_weight_tying", theirs.tied, ours.tied);
  compare("rope_theta", theirs.rope_theta, ours.rope_theta);
  if (theirs.hidden_dim() != ours.hidden_dim())
    out.push_back({"model.args.multiple_of", "a feed-forward width of " + std::to_string(theirs.hidden_dim()),
                   "one of " + std::to_string(ours.hidden_dim())});
  // A factor of 1 scales nothing, so that a configuration can turn off the scaling of a flavor.
  const auto scales = [](const LlamaArgs& args) { return args.rope_scaling && args.rope_scaling->scaling_factor != 1; };
  if (scales(theirs) != scales(ours)) {
    const auto text = [&](const LlamaArgs& args) {
      return scales(args) ? fmt::format("{}", args.rope_scaling->scaling_factor) : "1 (no scaling)";
    };
    out.push_back({"model.args.rope_scaling_args.scaling_factor", text(theirs), text(ours)});
  } else if (scales(theirs)) {
    const auto &there = *theirs.rope_scaling, &here = *ours.rope_scaling;
    compare("rope_scaling_args.scaling_factor", there.scaling_factor, here.scaling_factor);
    compare("rope_scaling_args.low_freq_factor", there.low_freq_factor, here.low_freq_factor);
    compare("rope_scaling_args.high_freq_factor", there.high_freq_factor, here.high_freq_factor);
    compare("rope_scaling_args.original_max_position_embeddings", there.original_max_position_embeddings,
            here.original_max_position_embeddings);
  }
  return out;
}

}  // namespace titan::models
