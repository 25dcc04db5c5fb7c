#include "apps/saved/model_source.h"

#include "base/error.h"
#include "base/run_layout.h"

namespace titan {
namespace fs = std::filesystem;

std::optional<ModelSource> find_model_source(const fs::path& checkpoint, checkpoint::CheckpointKind kind,
                                             bool is_named) {
  using Kind = ModelSource::Kind;
  const auto if_there = [](Kind found, const fs::path& file) {
    return fs::is_regular_file(file) ? std::optional(ModelSource{found, file}) : std::nullopt;
  };
  // A save in one file has it beside the file.
  const bool is_file = kind == checkpoint::CheckpointKind::kTorch && !fs::is_directory(checkpoint);
  const fs::path folder = is_file ? checkpoint.parent_path() : checkpoint;
  if (const auto own = if_there(Kind::kSaved, folder / layout::kSavedConfigFile)) return own;
  if (is_named) return ModelSource{Kind::kNamed, {}};
  if (kind == checkpoint::CheckpointKind::kHuggingFace) return if_there(Kind::kHuggingFace, config_beside(checkpoint));
  // A conversion from Hugging Face's format leaves config.json there.
  if (fs::is_directory(checkpoint))
    if (const auto described = if_there(Kind::kHuggingFace, config_beside(checkpoint))) return described;
  return if_there(Kind::kRun, layout::config_of_step(checkpoint));
}

std::optional<std::string> chat_template_of_run(const fs::path& file, const config::JobConfig& config) {
  const fs::path kept = file.parent_path() / layout::kChatTemplateFile;
  return fs::is_regular_file(kept) ? kept.string() : config.chat.chat_template;
}

void refuse_adapters_alone(const fs::path& checkpoint, const std::string& command) {
  if (!fs::is_regular_file(checkpoint / layout::kAdapterConfig)) return;
  throw ConfigError(command + ": error: " + checkpoint.string() +
                    " holds adapters alone, in PEFT's format, and not the model that they belong to: name a checkpoint "
                    "of the run with its full state (checkpoint.last_save_model_only = false, or an earlier step), or "
                    "load both with PEFT");
}

fs::path config_beside(const fs::path& weights) {
  return (fs::is_directory(weights) ? weights : weights.parent_path()) / "config.json";
}

void check_same_model(const TrainSpec& named, const NamedModel& words, const TrainSpec& saved,
                      const fs::path& saved_in) {
  if (named.naming.config_json == saved.naming.config_json) return;
  throw ConfigError(words.command + ": error: " + words.words +
                    " describes another model than the one that was saved (" + saved_in.string() + "): leave " +
                    words.flags + " out");
}

}  // namespace titan
