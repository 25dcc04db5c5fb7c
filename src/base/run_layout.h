// The names of what a run leaves under job.dump_folder, for all parts of the program that write or look for them:
//   .run.lock         held while a run writes there
//   config.toml       the run's configuration
//   metrics.jsonl     a row per logged step
//   validation.jsonl  a row per validation
//   events.jsonl      a row per start, save, stop and the like
//   checksums.jsonl   a row per step with checksums of parameters and gradients, with debug.checksum_freq
//   metrics.csv, validation.csv  the same as tables, where metrics.enable_csv asks for them
//   logs/rank_N.log   what each rank said
//   checkpoint/       checkpoint.folder, with a folder step-N per saved step
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace titan::layout {

inline constexpr const char* kLockFile = ".run.lock";
inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kStepsFile = "metrics.jsonl";
inline constexpr const char* kValidationsFile = "validation.jsonl";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kChecksumsFile = "checksums.jsonl";
inline constexpr const char* kStepsTable = "metrics.csv";
inline constexpr const char* kValidationsTable = "validation.csv";
inline constexpr const char* kLogsFolder = "logs";  // rank_N.log

// Files of a step folder. A save writes the first of its format last: a folder that has it is complete.
inline constexpr const char* kMetadataFile = ".metadata";                         // of the DCP format
inline constexpr const char* kHuggingFaceIndex = "model.safetensors.index.json";  // of Hugging Face's
inline constexpr const char* kSavedConfigFile = "titan.config.toml";              // the run's configuration again
inline constexpr const char* kNotFiniteFile = "titan.not_finite.txt";             // the weights hold NaN or infinity

// "step-N".
std::string step_name(std::int64_t step);

// N for exactly "step-N<suffix>", as step_name() writes N.
std::optional<int> step_of(std::string_view name, std::string_view suffix = "");

// Whether `folder` is a checkpoint whose save ended, in whichever format.
bool is_complete_save(const std::filesystem::path& folder);

// The configuration of the run that a step folder lies in: two folders above it, where checkpoint.folder is one folder
// under job.dump_folder. The file need not be there.
std::filesystem::path config_of_step(const std::filesystem::path& step_folder);

}  // namespace titan::layout
