// Which configuration says what model a checkpoint holds.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/tools/convert.h"
#include "contract/train_contract.h"

namespace titan {

struct ModelSource {
  enum class Kind {
    kSaved,        // the run's configuration as the save wrote it among the checkpoint's files
    kNamed,        // what the command line names
    kHuggingFace,  // the config.json of Hugging Face weights, or of what was converted from them
    kRun,          // the configuration of the run whose folder the checkpoint lies in
  };
  Kind kind = Kind::kNamed;
  std::filesystem::path file;  // "" for kNamed
};

// The first of these that is there, in the order above, since a checkpoint knows its model best. `is_named`: the
// command line names a model. Nothing where nothing says it.
std::optional<ModelSource> find_model_source(const std::filesystem::path& checkpoint, checkpoint::CheckpointKind kind,
                                             bool is_named);

// config.json of Hugging Face weights, a folder or one file. Need not be there.
std::filesystem::path config_beside(const std::filesystem::path& weights);

// A model that the command line names, in words for a message.
struct NamedModel {
  std::string command;  // "titan-train convert"
  std::string words;    // "--config job.toml"
  std::string flags;    // "--config", those to leave out
};

// Throws ConfigError where `named` is not the model that the checkpoint's own configuration, `saved_in`, describes.
void check_same_model(const TrainSpec& named, const NamedModel& words, const TrainSpec& saved,
                      const std::filesystem::path& saved_in);

}  // namespace titan
