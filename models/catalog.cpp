#include "models/catalog.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "models/common/check_shape.h"
#include "models/llama3/flavors.h"
#include "models/llama3/naming.h"
#include "models/qwen2/flavors.h"
#include "models/qwen2/naming.h"
#include "models/qwen3/flavors.h"
#include "models/qwen3/naming.h"
#include "models/smollm3/flavors.h"
#include "models/smollm3/naming.h"

namespace titan::models {

std::span<const CatalogEntry> catalog() {
  // clang-format off
  static const std::array kCatalog = {
      CatalogEntry{"llama3", {"LlamaForCausalLM", "MistralForCausalLM"}, llama_flavor_names, llama_starts,
                   check_llama_args, llama_decoder, llama_naming, read_llama_config},
      CatalogEntry{"llama2", {}, llama_flavor_names, llama_starts,
                   check_llama_args, llama_decoder, llama_naming, read_llama_config},
      CatalogEntry{"qwen2", {"Qwen2ForCausalLM"}, qwen2_flavor_names, qwen2_starts,
                   check_qwen2_args, qwen2_decoder, qwen2_naming, read_qwen2_config},
      CatalogEntry{"qwen3", {"Qwen3ForCausalLM"}, qwen3_flavor_names, qwen3_starts,
                   check_qwen3_args, qwen3_decoder, qwen3_naming, read_qwen3_config},
      CatalogEntry{"smollm3", {"SmolLM3ForCausalLM"}, smollm3_flavor_names, smollm3_starts,
                   check_smollm3_args, smollm3_decoder, smollm3_naming, read_smollm3_config},
  };
  // clang-format on
  return kCatalog;
}

const CatalogEntry& entry_of(const config::Model& model) {
  for (const CatalogEntry& entry : catalog())
    if (model.name == entry.name) return entry;
  const auto names = model_names();
  const auto nearest = nearest_name(model.name, names);
  throw ConfigError("model.name = \"" + model.name + "\" is unknown" +
                        (nearest ? "; did you mean \"" + *nearest + "\"?" : ".") + " Models: " + join(names, ", "),
                    {"model.name"});
}

const CatalogEntry& entry_of_config(const std::string& config_json, const std::string& what) {
  std::string reason;
  try {
    const std::string architecture = architecture_of(config_json);
    std::vector<std::string> known;
    for (const CatalogEntry& entry : catalog()) {
      if (std::ranges::count(entry.architectures, architecture) > 0) return entry;
      known.insert(known.end(), entry.architectures.begin(), entry.architectures.end());
    }
    reason = "the architecture " + architecture + " is unknown; expected " + join(known, " or ");
  } catch (const ConfigError& error) {
    reason = error.what();
  }
  throw ConfigError("error: " + what + " describes no model that can be built here: " + reason);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> flavor_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog())
    for (const std::string& flavor : entry.flavors(entry.name))
      if (std::ranges::count(names, flavor) == 0) names.push_back(flavor);
  return names;
}

void check_model(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  for (const CatalogEntry& entry : catalog())
    if (config.model.name == entry.name) return entry.check_args(config, errors);
  check_decoder_args(config, errors);
}

void check_plan(const config::JobConfig& config, std::vector<config::Fault>& errors) {
  try {
    const ModelStats stats = stats_of(entry_of(config.model).decoder(config.model).shape);
    check_pipeline(stats, config, errors);
    check_mesh(stats, config.parallelism);
  } catch (const ConfigError& error) {
    errors.push_back({error.what(), error.keys()});
  }
}

}  // namespace titan::models
