#include "models/registry.h"

#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"
#include "models/llama3/flavors.h"
#include "models/llama3/naming.h"
#include "models/llama3/spec.h"
#include "models/qwen3/spec.h"

namespace titan::models {
namespace {

struct Row {
  const char* name;          // [model].name
  const char* architecture;  // in config.json of Hugging Face's transformers
  TrainSpec (*make_spec)(const config::Model& model, std::int64_t seq_len);
  TrainSpec (*make_spec_of_hugging_face)(const std::string& config_json, const std::string& what,
                                         std::optional<std::int64_t> seq_len);
  ModelNaming (*naming)();  // the same for all flavors
};

ModelNaming any_llama_naming() { return llama_naming({LlamaArgs().decoder(), LlamaArgs().max_seq_len}); }

constexpr std::array kModels = {
    Row{"llama3", kLlamaArchitecture, llama_spec, llama_spec_of_hugging_face, any_llama_naming},
    Row{"llama2", kLlamaArchitecture, llama_spec, llama_spec_of_hugging_face, any_llama_naming},
    Row{"qwen3", kQwen3Architecture, qwen3_spec, qwen3_spec_of_hugging_face, qwen3_naming},
};

// Returns the first row of an architecture. All rows of one architecture read config.json the same way.
const Row& row_of_architecture(const std::string& name) {
  // Mistral is the same model; make_spec_of_hugging_face() refuses its extensions.
  const std::string architecture = name == "MistralForCausalLM" ? kLlamaArchitecture : name;
  std::vector<std::string> known;
  for (const auto& row : kModels) {
    if (architecture == row.architecture) return row;
    if (known.empty() || known.back() != row.architecture) known.emplace_back(row.architecture);
  }
  throw ConfigError("the architecture " + architecture + " is unknown; expected " + join(known, " or "));
}

}  // namespace

TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len) {
  for (const auto& row : kModels) {
    if (model.name == row.name) return row.make_spec(model, seq_len);
  }
  const auto names = model_names();
  const auto nearest = nearest_name(model.name, names);
  throw ConfigError("model.name = \"" + model.name + "\" is unknown" +
                        (nearest ? "; did you mean \"" + *nearest + "\"?" : ".") + " Models: " + join(names, ", "),
                    {"model.name"});
}

TrainSpec make_train_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                          std::optional<std::int64_t> seq_len) {
  const Row* row = nullptr;
  try {
    row = &row_of_architecture(architecture_of(config_json));
  } catch (const ConfigError& error) {
    throw ConfigError("error: " + what + " describes no model that can be built here: " + error.what());
  }
  return row->make_spec_of_hugging_face(config_json, what, seq_len);
}

std::optional<std::string> parameter_of_hub_name(const std::string& name) {
  static const std::vector<ModelNaming> kNamings = [] {
    std::vector<ModelNaming> namings;
    for (const Row& row : kModels) namings.push_back(row.naming());
    return namings;
  }();
  for (const ModelNaming& naming : kNamings)
    if (const auto origin = naming.from_hub(name)) return origin->fqn;
  return std::nullopt;
}

std::vector<std::string> registered_models() {
  std::vector<std::string> names;
  for (const Row& row : kModels) names.emplace_back(row.name);
  return names;
}

}  // namespace titan::models
