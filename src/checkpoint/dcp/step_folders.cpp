#include "checkpoint/dcp/step_folders.h"

#include <algorithm>
#include <system_error>

#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/io/discard.h"
#include "checkpoint/io/read_error.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;

fs::path step_folder(const fs::path& base, int step) { return base / layout::step_name(step); }

StepEntries step_entries(const fs::path& base, std::string_view suffix) {
  StepEntries entries;
  for (const std::string& name : listing_of(base)) {
    const auto step = layout::step_of(name, suffix);
    if (!step) continue;
    (type_of(base / name) == fs::file_type::directory ? entries.folders : entries.others).push_back(*step);
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.others);
  return entries;
}

std::vector<int> steps_in(const fs::path& base, std::string_view suffix) { return step_entries(base, suffix).folders; }

bool is_saved(const fs::path& folder) {
  return is_file(folder / layout::kMetadataFile) || is_file(folder / layout::kHuggingFaceIndex) ||
         is_file(folder / layout::kAdapterConfig) || is_file(folder / layout::kModelFile);
}

std::string step_list(const std::vector<int>& steps) {
  std::vector<std::string> names;
  for (const int step : steps) names.push_back(layout::step_name(step));
  return names.empty() ? "none" : join(names, ", ");
}

void recover_replacements(const fs::path& base) {
  for (const int step : steps_in(base, ".replaced")) recover_replacement(step_folder(base, step));
}

void clean_up(const fs::path& base) {
  recover_replacements(base);
  for (const int step : steps_in(base, ".tmp")) discard(temporary_folder(step_folder(base, step)));
  discard_remains(base);
}

bool is_of_numbers(const fs::path& folder) { return !is_there(folder / layout::kNotFiniteFile); }

namespace {

// Renames the folder first: under its temporary name it is not a checkpoint, so a kill leaves no half-removed one.
void remove_step(const fs::path& folder) {
  try {
    free_name(temporary_folder(folder));
    std::error_code error;
    fs::rename(folder, temporary_folder(folder), error);
    if (error == std::errc::cross_device_link) {  // a folder of an overlay's lower layer
      discard_in_place(folder);
    } else if (error) {
      throw fs::filesystem_error("cannot rename", folder, temporary_folder(folder), error);
    } else {
      discard(temporary_folder(folder));
    }
  } catch (const std::exception& error) {
    warn_once("The old checkpoint " + folder.string() + " could not be removed, and stays: " + error.what());
  }
}

// True for a complete checkpoint. One that cannot be looked at stays, and is not counted.
bool is_removable(const fs::path& folder) {
  try {
    return is_complete(folder);
  } catch (const ReadError& error) {
    warn_once(error.what());
    return false;
  }
}

}  // namespace

void remove_old_steps(const fs::path& base, int keep_latest, const KeepRule& rule) {
  if (keep_latest == 0) return;
  try {
    std::vector<int> steps = steps_in(base);
    std::erase_if(steps, [&](int step) { return !is_removable(step_folder(base, step)); });
    const auto keep = static_cast<std::size_t>(keep_latest);
    const auto special = rule ? rule(steps) : std::nullopt;
    const auto good =
        std::find_if(steps.rbegin(), steps.rend(), [&](int step) { return is_of_numbers(step_folder(base, step)); });
    for (std::size_t i = 0; i + keep < steps.size(); ++i) {
      if (steps[i] == special || (good != steps.rend() && steps[i] == *good)) continue;
      remove_step(step_folder(base, steps[i]));
    }
  } catch (const std::exception& error) {
    warn_once("Old checkpoints in " + base.string() + " could not be removed: " + error.what());
  }
}

}  // namespace titan::checkpoint
