// Names of a model's parameters in Hugging Face's format, and the tokenizer's files beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "facts/adapter_names.h"

namespace titan {

// A tensor in Hugging Face's format that holds a parameter, or one index of its dim 0.
struct HubTensor {
  std::string name;
  // Number of attention heads in dim 0. Within each head, Hugging Face stores our even rows first, then our odd
  // rows, because its rotary embedding rotates halves and ours rotates pairs. 0: the row order is the same.
  std::int64_t rotary_heads = 0;
  // Index in dim 0 of a parameter that stacks several tensors, such as experts; the tensor is without that dim.
  // nullopt: the tensor is the whole parameter.
  std::optional<std::int64_t> index = {};
};

// Returns the shape of `tensor` if its parameter has `shape`.
inline std::vector<std::int64_t> shape_in_hub(std::vector<std::int64_t> shape, const HubTensor& tensor) {
  if (tensor.index && !shape.empty()) shape.erase(shape.begin());
  return shape;
}

// The parameter that a tensor in Hugging Face's format belongs to.
struct HubOrigin {
  std::string fqn;
  std::optional<std::int64_t> index = {};  // see HubTensor::index
};

// A value of a config.json that differs from the model's.
struct HubDifference {
  std::string key;     // ours: "model.args.rope_theta"
  std::string theirs;  // "10000"
  std::string ours;
};

// The names of one model in Hugging Face's format. The functions are pure, and may be empty.
struct ModelNaming {
  // Returns the tensors of the parameter `fqn`: one, or all indices of its dim 0 in order. Throws InternalError for a
  // name that is not a parameter's.
  std::function<std::vector<HubTensor>(const std::string& fqn)> to_hub;
  // Returns the parameter that a tensor belongs to; nullopt for a name that is not a parameter's.
  std::function<std::optional<HubOrigin>(const std::string& name)> from_hub = {};
  // Our names of the embedding and the output projection. If config.json ties them, the weights store them once, under
  // the embedding's name. Empty if the model cannot tie them.
  std::string embedding = {}, output = {};
  // True if the embedding and the output projection are one parameter. An export has it once, as the embedding.
  bool is_tied = false;
  // The reason why the format has no such model, if it does not; else empty.
  std::string misfit = {};
  // The model's config.json.
  std::string config_json = {};
  // adapter_config.json of PEFT (of Hugging Face), if the model has adapters; else empty. An export then has the
  // adapters alone, under the names of to_hub().
  std::string adapter_config = {};
  // Returns the values in `config_json` (of the file `what`) that differ from this model and change its results. Throws
  // ConfigError for a model that cannot be built here.
  std::function<std::vector<HubDifference>(const std::string& config_json, const std::string& what)> differences = {};
};

// Returns true if an export has the parameter. It lacks a tied output projection, which is the embedding; with adapters
// it has nothing else.
inline bool is_exported(const ModelNaming& naming, const std::string& fqn) {
  if (!naming.adapter_config.empty()) return is_adapter_name(fqn);
  return !naming.is_tied || fqn != naming.output;
}

// The tokenizer's files beside weights in Hugging Face's format, and what generation_config.json says of its tokens.
struct HuggingFaceTokenizer {
  std::map<std::string, std::string> files = {};  // name -> content
  std::optional<std::int64_t> bos_id = {};        // nullopt if there is none or it is not known
  std::optional<std::int64_t> eos_id = {};        // likewise
  std::vector<std::int64_t> stop_ids = {};        // tokens that end a text: EOS if it is known, and others
  std::string generation_defaults = {};           // a generation_config.json whose other values stay; "" for none
};

}  // namespace titan
