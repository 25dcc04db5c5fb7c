// Lists the models by name with everything that does not need torch: flavors, shape checks, names in Hugging Face's
// format, and values to start from. registry.h builds the models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "facts/model_naming.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Suitable values for a flavor, which `titan-train init` prints.
struct Start {
  std::string model;          // "llama3"
  std::string flavor;         // "8B"
  double parameters;          // in billions
  std::int64_t seq_len;       // tokens
  std::int64_t batch_tokens;  // per step, over all ranks
  std::string lr;             // as TOML writes it
  std::string recompute;      // activation_checkpoint.mode
  std::string device;         // for --dry-run --device
  int gigabytes;              // memory of that device
};

struct CatalogEntry {
  const char* name;                             // [model].name
  std::vector<std::string_view> architectures;  // in config.json of Hugging Face's transformers; empty: another entry's
  std::vector<std::string> (*flavors)(const std::string& name);
  std::vector<Start> (*starts)(const std::string& name);
  // Appends the faults of [model.args], and of the degrees of parallelism for it.
  void (*check_args)(const config::JobConfig& config, std::vector<config::Fault>& errors);
  // Returns the flavor of [model] with the overrides of [model.args]. Throws ConfigError.
  HubDecoder (*decoder)(const config::Model& model);
  // Returns the names in Hugging Face's format.
  ModelNaming (*naming)(const HubDecoder& model);
  // Returns the model that a config.json of `architectures` describes. See read_hub_config().
  HubDecoder (*read_config)(const std::string& config_json, const std::string& what);
};

std::span<const CatalogEntry> catalog();

// Returns the entry of [model].name. Throws ConfigError for an unknown name.
const CatalogEntry& entry_of(const config::Model& model);

// Returns the entry that can build the model of a config.json; `what` names the file. Throws ConfigError.
const CatalogEntry& entry_of_config(const std::string& config_json, const std::string& what);

// Returns the names of the models, in the order of the catalog.
std::vector<std::string> model_names();

// Returns the flavors of all models, each once.
std::vector<std::string> flavor_names();

// Appends the faults of [model], by the rules of the model that it names. Does not report an unknown name:
// check_plan() does.
void check_model(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Appends what is wrong with the whole model, flavor included, and with its division over ranks by tensor and pipeline
// parallelism. Reports an unknown name.
void check_plan(const config::JobConfig& config, std::vector<config::Fault>& errors);

}  // namespace titan::models
