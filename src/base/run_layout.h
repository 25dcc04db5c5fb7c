// Names of the files that a run writes under job.dump_folder, for all code that writes or looks for them:
//   .run.lock         held while a run writes there
//   config.toml       the run's configuration
//   titan.chat_template.jinja  the text of its chat template, if it has one
//   metrics.jsonl     a row per logged step
//   validation.jsonl  a row per validation
//   evaluation.jsonl  a row per pass over the tasks of evaluation.tasks
//   events.jsonl      a row per start, save, stop, ...
//   checksums.jsonl   a row per step with checksums of parameters and gradients, with debug.checksum_freq
//   metrics.csv, validation.csv  the same as tables, with metrics.enable_csv
//   logs/rank_N.log   the log of rank N
//   checkpoint/       checkpoint.folder, with a folder step-N per saved step; if it is elsewhere, .checkpoints.owner is
//                     in it while the run lasts
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace titan::layout {

inline constexpr const char* kLockFile = ".run.lock";
inline constexpr const char* kCheckpointsOwnerFile = ".checkpoints.owner";
inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kStepsFile = "metrics.jsonl";
inline constexpr const char* kValidationsFile = "validation.jsonl";
inline constexpr const char* kEvaluationsFile = "evaluation.jsonl";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kChecksumsFile = "checksums.jsonl";
inline constexpr const char* kStepsTable = "metrics.csv";
inline constexpr const char* kValidationsTable = "validation.csv";
inline constexpr const char* kLogsFolder = "logs";  // rank_N.log

// Files of a step folder. A save writes .metadata, the index, the adapters' configuration or the model's file,
// depending on its format, last, or renames the folder after it: a folder that has it is complete.
inline constexpr const char* kMetadataFile = ".metadata";                         // of the DCP format
inline constexpr const char* kHuggingFaceIndex = "model.safetensors.index.json";  // of Hugging Face's
inline constexpr const char* kAdapterConfig = "adapter_config.json";              // of PEFT's, for adapters alone
inline constexpr const char* kModelFile = "model.pt";                             // of a save in one file
inline constexpr const char* kSavedConfigFile = "titan.config.toml";              // a copy of the run's configuration
inline constexpr const char* kChatTemplateFile = "titan.chat_template.jinja";     // of the run's conversations
inline constexpr const char* kNotFiniteFile = "titan.not_finite.txt";             // the weights hold NaN or infinity

// Returns "step-N".
std::string step_name(std::int64_t step);

// Returns N if `name` is exactly "step-N<suffix>", with N as step_name() writes it.
std::optional<int> step_of(std::string_view name, std::string_view suffix = "");

// True if `folder` is a complete checkpoint, in any format.
bool is_complete_save(const std::filesystem::path& folder);

// Returns the path of the configuration of the run that wrote a step folder: two folders above it,
// if checkpoint.folder is one level below job.dump_folder. The file need not exist.
std::filesystem::path config_of_step(const std::filesystem::path& step_folder);

}  // namespace titan::layout
