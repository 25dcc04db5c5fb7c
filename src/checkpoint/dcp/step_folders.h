// Manages the folders of a run's checkpoints: step-N, and the remains of interrupted saves. Called on rank 0; nothing
// here is collective.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titan::checkpoint {

std::filesystem::path step_folder(const std::filesystem::path& base, int step);

// The N of what is named "step-N<suffix>" in a folder, ascending.
struct StepEntries {
  std::vector<int> folders;
  std::vector<int> others;  // files, and links that lead nowhere
};

// Returns those in `base`; none if it is not a folder. Throws ReadError.
StepEntries step_entries(const std::filesystem::path& base, std::string_view suffix = "");

// Returns only the folders.
std::vector<int> steps_in(const std::filesystem::path& base, std::string_view suffix = "");

// True if `folder` holds a complete checkpoint of any format: its last file was written. Throws ReadError, so that a
// folder that cannot be looked at is not taken for an incomplete one.
bool is_saved(const std::filesystem::path& folder);

// Returns "step-2, step-4", or "none".
std::string step_list(const std::vector<int>& steps);

// Completes replacements that a kill interrupted.
void recover_replacements(const std::filesystem::path& base);

// Does the same, and removes unfinished saves and earlier remains as far as possible (discard.h).
void clean_up(const std::filesystem::path& base);

// Returns the one of the complete `steps` to keep regardless of its age, or nullopt.
using KeepRule = std::function<std::optional<int>(const std::vector<int>& steps)>;

// True if the run that saved `folder` considered its weights finite. Other saves contain the file kNotFiniteFile.
bool is_of_numbers(const std::filesystem::path& folder);

// Removes the oldest complete checkpoints beyond `keep_latest` (0: removes none), except the one that `rule` names and
// the newest that is_of_numbers(): later saves that are not finite never replace it. Warns once about a folder that it
// cannot remove; if it could be renamed, it is not a checkpoint any more.
void remove_old_steps(const std::filesystem::path& base, int keep_latest, const KeepRule& rule);

}  // namespace titan::checkpoint
