#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/llama3/hugging_face.h"

namespace titan::models {
namespace {

using Json = nlohmann::json;

// The entry of a key; null where it is missing or null.
const Json* find(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

template <typename T>
T value_or(const Json& json, const char* key, T otherwise) {
  const Json* found = find(json, key);
  return found ? found->get<T>() : otherwise;
}

// What this program's Llama does one way only. Each fault says what was expected.
void check_kind(const Json& json, std::vector<std::string>& faults) {
  const std::string activation = value_or<std::string>(json, "hidden_act", "silu");
  if (activation != "silu") faults.push_back("hidden_act: expected \"silu\", found \"" + activation + "\"");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (value_or(json, key, false)) faults.push_back(std::string(key) + ": expected false, found true");
}

// transformers 5 has one table rope_parameters, earlier ones have rope_theta and rope_scaling.
void read_rope(const Json& json, LlamaArgs& args, std::vector<std::string>& faults) {
  const Json* parameters = find(json, "rope_parameters");
  const Json* rope = parameters ? parameters : find(json, "rope_scaling");
  args.rope_theta = value_or(parameters ? *parameters : json, "rope_theta", 10000.0);
  args.rope_scaling = std::nullopt;
  if (!rope) return;
  const auto kind = value_or<std::string>(*rope, "rope_type", value_or<std::string>(*rope, "type", "default"));
  if (kind == "llama3") {
    args.rope_scaling = nn::RopeScaling{rope->at("factor").get<double>(), rope->at("low_freq_factor").get<double>(),
                                        rope->at("high_freq_factor").get<double>(),
                                        rope->at("original_max_position_embeddings").get<std::int64_t>()};
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
    args.n_kv_heads = value_or(json, "num_key_value_heads", args.n_heads);
    args.vocab_size = json.at("vocab_size").get<std::int64_t>();
    args.ffn_dim = json.at("intermediate_size").get<std::int64_t>();
    args.norm_eps = value_or(json, "rms_norm_eps", 1e-6);
    args.max_seq_len = value_or<std::int64_t>(json, "max_position_embeddings", 2048);
    std::vector<std::string> faults;
    check_kind(json, faults);
    read_rope(json, args, faults);
    check_sizes(json, args, faults);
    if (!faults.empty()) throw ConfigError(join(faults, "; "));
    return args;
  } catch (const std::exception& error) {
    throw ConfigError("error: " + what + " describes no model that can be built here: " + error.what());
  }
}

}  // namespace titan::models
