// Finds the configuration that describes the model in a checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/tools/convert.h"
#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan {

struct ModelSource {
  enum class Kind {
    kSaved,        // the run's configuration, which a save writes into the checkpoint
    kNamed,        // the model that the command line names
    kHuggingFace,  // config.json of Hugging Face weights, or of a checkpoint converted from them
    kRun,          // the configuration of the run whose folder contains the checkpoint
  };
  Kind kind = Kind::kNamed;
  std::filesystem::path file;  // "" for kNamed
};

// Returns the first of these that exists, in the order above: the checkpoint's own description comes first. nullopt if
// there is none. `is_named`: the command line names a model.
std::optional<ModelSource> find_model_source(const std::filesystem::path& checkpoint, checkpoint::CheckpointKind kind,
                                             bool is_named);

// Returns the path of the chat template of the run whose saved configuration, read from `file`, is `config`: its copy
// beside that file, else chat.chat_template; nullopt if it has neither, and its template is its tokenizer's.
std::optional<std::string> chat_template_of_run(const std::filesystem::path& file, const config::JobConfig& config);

// Throws ConfigError if a checkpoint holds adapters alone, in PEFT's format, which need the model beside them.
// `command`: "titan-train convert".
void refuse_adapters_alone(const std::filesystem::path& checkpoint, const std::string& command);

// Returns the path of config.json for Hugging Face weights, a folder or one file. It need not exist.
std::filesystem::path config_beside(const std::filesystem::path& weights);

// Words for messages about the model that the command line names.
struct NamedModel {
  std::string command;  // "titan-train convert"
  std::string words;    // "--config job.toml"
  std::string flags;    // "--config", the flags to leave out
};

// Throws ConfigError if `named` is not the model that the checkpoint's own configuration, `saved_in`, describes.
void check_same_model(const TrainSpec& named, const NamedModel& words, const TrainSpec& saved,
                      const std::filesystem::path& saved_in);

}  // namespace titan
