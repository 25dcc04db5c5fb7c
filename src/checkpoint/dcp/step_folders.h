// The folders of a run's checkpoints: step-N, and what an interrupted save left beside them. Rank 0's business: nothing
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

// All N with a folder "step-N<suffix>" in `base`, ascending.
std::vector<int> steps_in(const std::filesystem::path& base, std::string_view suffix = "");

// "step-2, step-4", or "none".
std::string step_list(const std::vector<int>& steps);

// Ends replacements that a kill interrupted.
void recover_replacements(const std::filesystem::path& base);

// That, and removes unfinished saves and what could not be removed earlier, as far as it can be (discard.h).
void clean_up(const std::filesystem::path& base);

// Which of the steps that have a complete checkpoint stays whatever its age, or nothing.
using KeepRule = std::function<std::optional<int>(const std::vector<int>& steps)>;

// Whether the run that saved `folder` took its weights for numbers. Others are marked by a file, kNotFiniteFile.
bool is_of_numbers(const std::filesystem::path& folder);

// Removes the oldest complete checkpoints beyond `keep_latest` (0: none), but the one that `rule` names and the newest
// that is_of_numbers(): those that follow it, of weights that are not, never take its place. What cannot be removed is
// warned of once, and no checkpoint any more where its folder can be renamed.
void remove_old_steps(const std::filesystem::path& base, int keep_latest, const KeepRule& rule);

}  // namespace titan::checkpoint
