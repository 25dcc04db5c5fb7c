#include "checkpoint/choose.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/discard.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/memory_copies.h"
#include "checkpoint/torchtitan_keys.h"
#include "checkpoint/whole/weights_file.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// True if `folder` is a complete last save with checkpoint.last_save_in_hf, whose index is written last.
bool is_hugging_face(const fs::path& folder) { return is_there(folder / kHuggingFaceIndex); }

// True if `folder` is a complete last save of adapters in PEFT's format.
bool has_adapters_alone(const fs::path& folder) { return is_there(folder / layout::kAdapterConfig); }

// True if `folder` is a last save with checkpoint.last_save_as = "file".
bool is_one_file(const fs::path& folder) { return is_there(folder / layout::kModelFile); }

// True if `folder` is a complete last save in a format of the model only.
bool is_export(const fs::path& folder) {
  return is_hugging_face(folder) || has_adapters_alone(folder) || is_one_file(folder);
}

// True for a full state, which can be resumed; a model-only save lacks the trainer's own keys.
bool is_full(const fs::path& folder) { return !is_export(folder) && read_metadata(folder).find(kStepKey) != nullptr; }

bool has_readable_metadata(const fs::path& folder) {
  if (is_export(folder)) return true;
  try {
    read_metadata(folder);
    return true;
  } catch (const ReadError&) {
    throw;
  } catch (const CheckpointError& error) {
    spdlog::error("{} is damaged, looking at older checkpoints: {}", folder.string(), error.what());
    return false;
  }
}

// The steps of a run, by what can be seen of them.
struct Steps {
  std::vector<int> folders;  // all of them
  std::vector<int> complete = {};
  std::vector<int> damaged = {};
  std::map<int, std::string> passed_over = {};  // step -> what it is instead: "incomplete (no .metadata)"
  std::map<int, std::string> unreadable = {};   // step -> the error of the system
};

std::string why_incomplete(const fs::path& folder) {
  if (is_there(folder / layout::kMetadataFile)) return "incomplete (its .metadata is not a file)";
  return listing_of(folder).empty() ? "incomplete (an empty folder)" : "incomplete (no .metadata)";
}

Steps find_steps(const fs::path& base, std::vector<int> damaged) {
  const StepEntries entries = step_entries(base);
  Steps steps{.folders = entries.folders, .damaged = std::move(damaged)};
  for (const int step : entries.others) {
    steps.passed_over[step] = "not a folder";
    warn_once(step_folder(base, step).string() + " is not a folder, and is passed over");
  }
  for (const int step : entries.folders) {
    const fs::path folder = step_folder(base, step);
    try {
      if (is_saved(folder)) {
        steps.complete.push_back(step);
      } else {
        steps.passed_over[step] = why_incomplete(folder);
      }
    } catch (const ReadError& error) {
      steps.unreadable[step] = error.what();
    }
  }
  return steps;
}

// Returns "step-3 is incomplete (no .metadata); step-4 is damaged. ", or "" if nothing was passed over.
std::string passed_over_text(const Steps& steps) {
  std::vector<std::string> texts;
  for (const auto& [step, what] : steps.passed_over) texts.push_back(layout::step_name(step) + " is " + what);
  return texts.empty() ? "" : join(texts, "; ") + ". ";
}

// Throws if the folder that cannot be read may be the checkpoint to load: an older one must not be loaded in its place.
// `wanted`: the step to load, or -1 for the newest.
void check_readable(const Steps& steps, int wanted) {
  for (const auto& [step, error] : steps.unreadable) {
    const bool may_be_newest = wanted < 0 && (steps.complete.empty() || step > steps.complete.back());
    if (step == wanted || may_be_newest)
      throw ReadError(error + (step == wanted ? "" : ". Or move " + layout::step_name(step) + " away"));
    warn_once(layout::step_name(step) + " is passed over: " + error);
  }
}

void drop_damaged(const fs::path& base, Steps& steps) {
  std::erase_if(steps.complete, [&](int step) {
    bool is_damaged = std::ranges::count(steps.damaged, step) > 0;
    if (!is_damaged && !has_readable_metadata(step_folder(base, step))) {
      steps.damaged.push_back(step);
      is_damaged = true;
    }
    if (is_damaged) steps.passed_over[step] = "damaged";
    return is_damaged;
  });
}

// Throws if none of the steps can be loaded.
void check_any_complete(const fs::path& base, const Steps& steps) {
  if (!steps.complete.empty()) return;
  if (!steps.damaged.empty())
    throw CheckpointError("every checkpoint in " + base.string() + " is damaged (" + step_list(steps.damaged) +
                          "); the errors are above. Move the folder away to start from the beginning");
  throw CheckpointError(base.string() + " holds " + step_list(steps.folders) +
                        ", but none of them is complete (a complete one has a .metadata file): " +
                        passed_over_text(steps) + "Move the folder away to start from the beginning");
}

LoadChoice choose_own(const config::Checkpoint& options, const RunFacts& run, Steps& steps) {
  const fs::path& base = run.base;
  const auto folder = [&](int step) { return step_folder(base, step); };
  const std::vector<int>& complete = steps.complete;
  check_readable(steps, static_cast<int>(options.load_step));
  check_any_complete(base, steps);
  int step = complete.back();
  if (options.load_step >= 0) {
    step = static_cast<int>(options.load_step);
    if (std::ranges::count(complete, step) == 0)
      throw CheckpointError("checkpoint.load_step = " + std::to_string(step) + ", but " + base.string() +
                            " has no complete checkpoint of that step; it has " + step_list(complete));
  }
  if (step == 0) return {folder(0).string(), 0, true};
  if (is_full(folder(step))) return {folder(step).string(), step, false};
  const bool is_finished = options.load_step < 0 && steps.damaged.empty() && step >= run.training_steps;
  if (is_finished) return {.folder = folder(step).string(), .step = step, .model_only = true, .is_finished = true};
  const std::string hint =
      has_adapters_alone(folder(step))
          ? "it holds the adapters alone, as checkpoint.last_save_in_hf asks. To go on "
            "training, set checkpoint.last_save_model_only = false before the run ends"
          : "it holds the model only, as the last save of a run does by default. To go on training, set "
            "checkpoint.last_save_model_only = false before the run ends; to start a new run from these weights, set "
            "checkpoint.initial_load_path = \"" +
                folder(step).string() + "\"" +
                (is_hugging_face(folder(step)) ? ", checkpoint.initial_load_in_hf = true" : "") +
                " and another checkpoint.folder";
  if (options.load_step >= 0) throw CheckpointError(folder(step).string() + " cannot be resumed: " + hint);
  for (auto older = complete.rbegin() + 1; older != complete.rend(); ++older) {
    if (*older == 0 || !is_full(folder(*older))) continue;
    spdlog::warn("{} holds the model only and cannot be resumed; resuming from step {} instead, the newest full state",
                 folder(step).string(), *older);
    return {folder(*older).string(), *older, false};
  }
  throw CheckpointError(folder(step).string() + " is the newest checkpoint and cannot be resumed: " + hint);
}

// Returns why a copy cannot be loaded; "" if nothing shows.
std::string fault_of_copy(const fs::path& folder) {
  try {
    if (!is_saved(folder)) return why_incomplete(folder);
    if (!is_of_numbers(folder)) return "not finite";
    return is_full(folder) ? "" : "not a full state";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

// Returns the newest copy in memory that seems to be whole; the folder is empty if there is none. A copy is never
// promised: whatever is wrong with one, an older state is loaded.
LoadChoice newest_copy(const RunFacts& run, const std::vector<int>& damaged) {
  const fs::path copies = find_copies(run.memory_folder, run.base);
  if (copies.empty()) return {};
  const std::vector<int> steps = steps_in(copies);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (std::ranges::count(damaged, *step) > 0) continue;
    const fs::path folder = step_folder(copies, *step);
    const std::string fault = fault_of_copy(folder);
    if (fault.empty()) return {.folder = folder.string(), .step = *step, .in_memory = true};
    warn_once("The copy in memory " + folder.string() + " is passed over: " + fault);
  }
  return {};
}

// Returns the newest copy in memory if it is of a later step than what can be seen of the checkpoints.
std::optional<LoadChoice> choose_copy(const config::Checkpoint& options, const RunFacts& run, const Steps& steps,
                                      const std::vector<int>& damaged) {
  if (options.load_step >= 0) return std::nullopt;
  LoadChoice copy = newest_copy(run, damaged);
  if (copy.folder.empty() || (!steps.complete.empty() && steps.complete.back() >= copy.step) ||
      (!steps.unreadable.empty() && steps.unreadable.rbegin()->first >= copy.step))
    return std::nullopt;
  copy.passed_over = steps.passed_over;
  spdlog::info("Checkpoints in {}: {}. {}Loading the full state from the copy in memory of step {}, {}",
               run.base.string(), step_list(steps.folders), passed_over_text(steps), copy.step, copy.folder);
  return copy;
}

void warn_of_initial_path(const config::Checkpoint& options, const fs::path& base) {
  if (options.initial_load_path.value_or("").empty()) return;
  spdlog::warn("checkpoint.initial_load_path is ignored: {} has checkpoints, and a run goes on from its own",
               base.string());
}

// Warns if the state is not finite: training.on_nan = "warn" saves such states and also resumes from them.
void warn_if_not_finite(const RunFacts& run, const LoadChoice& choice) {
  if (is_of_numbers(choice.folder)) return;
  const LoadChoice good = choose_good(run, {});
  spdlog::warn(
      "{} was saved with weights that were not finite any more, as training.on_nan = \"warn\" asks; {}", choice.folder,
      good.folder.empty() ? "there is no checkpoint from before"
                          : "the newest from before is " + good.folder +
                                ": checkpoint.load_step = " + std::to_string(good.step) + " goes on from there");
}

// Returns the newest complete step in `folder` or one folder below; empty if there is none.
fs::path newest_step(const fs::path& folder) {
  std::vector<fs::path> places = {folder};
  for (const std::string& name : listing_of(folder))
    if (type_of(folder / name) == fs::file_type::directory) places.push_back(folder / name);
  std::pair<int, fs::path> newest = {-1, {}};
  for (const auto& place : places)
    for (const int step : steps_in(place))
      if (step > newest.first && is_complete(step_folder(place, step))) newest = {step, step_folder(place, step)};
  return newest.second;
}

// Describes a path that is not a checkpoint, and says what to set instead.
std::string what_it_is(const fs::path& path) {
  if (!is_there(path)) return "does not exist";
  const auto is_weights = [](const fs::directory_entry& entry) { return entry.path().extension() == ".safetensors"; };
  if (std::ranges::any_of(fs::directory_iterator(path), is_weights))
    return "holds weights in Hugging Face's format: set checkpoint.initial_load_in_hf = true";
  if (const fs::path newest = newest_step(path); !newest.empty())
    return "is a run, or a folder of checkpoints: name one, the newest is " + newest.string();
  return "is not a complete checkpoint (no .metadata file in it)";
}

// Returns the file that `path` names, itself or as the folder of a save in one file; empty if it names none.
fs::path named_file(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::exists(path) ? path : fs::path();
  return !is_complete(path) && is_one_file(path) ? path / layout::kModelFile : fs::path();
}

LoadChoice choose_file(const config::Checkpoint& options, const RunFacts& run, const fs::path& file) {
  const std::string key = "checkpoint.initial_load_path: ";
  try {
    check_weights_file(file);
  } catch (const CheckpointError& error) {
    throw CheckpointError(key + error.what());
  }
  if (!options.initial_load_model_only)
    throw CheckpointError(key + file.string() +
                          " is a file, which holds weights alone, and checkpoint.initial_load_model_only is false; set "
                          "it to true, or name a checkpoint folder");
  spdlog::info("No checkpoints in {}. Loading the model from the file {}", run.base.string(), file.string());
  return {.folder = file.string(), .model_only = true, .is_file = true};
}

LoadChoice choose_initial(const config::Checkpoint& options, const RunFacts& run) {
  const std::string base = run.base.string();
  fs::path initial = options.initial_load_path.value_or("");
  if (options.initial_load_in_hf) {
    if (initial.empty()) initial = run.hf_assets_path;
    if (fs::is_regular_file(initial) && initial.extension() != ".safetensors")
      throw CheckpointError("checkpoint.initial_load_path = \"" + initial.string() +
                            "\" is a file, and checkpoint.initial_load_in_hf reads a folder or a *.safetensors file; "
                            "set checkpoint.initial_load_in_hf = false for a state dict under this program's names");
    spdlog::info("No checkpoints in {}. Loading the model from the safetensors files of {}", base, initial.string());
    return {initial.string(), 0, true, true};
  }
  if (initial.empty()) {
    spdlog::info("No checkpoints in {}; starting from initialized weights", base);
    return {};
  }
  if (const fs::path file = named_file(initial); !file.empty()) return choose_file(options, run, file);
  if (!is_complete(initial))
    throw CheckpointError("checkpoint.initial_load_path = \"" + initial.string() + "\" " + what_it_is(initial));
  spdlog::info("No checkpoints in {}. Loading {} from checkpoint.initial_load_path {}", base,
               options.initial_load_model_only ? "the model only" : "the full state", initial.string());
  return {initial.string(), 0, options.initial_load_model_only};
}

}  // namespace

std::string encode_choice(const LoadChoice& choice) {
  return nlohmann::json{{"folder", choice.folder},         {"step", choice.step},
                        {"model_only", choice.model_only}, {"in_hf", choice.in_hf},
                        {"is_file", choice.is_file},       {"is_finished", choice.is_finished},
                        {"in_memory", choice.in_memory},   {"passed_over", choice.passed_over}}
      .dump();
}

LoadChoice decode_choice(const std::string& bytes) {
  const auto json = nlohmann::json::parse(bytes);
  return {.folder = json.at("folder").get<std::string>(),
          .step = json.at("step").get<int>(),
          .model_only = json.at("model_only").get<bool>(),
          .in_hf = json.at("in_hf").get<bool>(),
          .is_file = json.at("is_file").get<bool>(),
          .is_finished = json.at("is_finished").get<bool>(),
          .in_memory = json.at("in_memory").get<bool>(),
          .passed_over = json.at("passed_over").get<std::map<int, std::string>>()};
}

LoadChoice choose_load(const config::Checkpoint& options, const RunFacts& run, std::vector<int> damaged,
                       const std::vector<int>& damaged_copies) {
  const fs::path& base = run.base;
  recover_replacements(base);
  Steps steps = find_steps(base, std::move(damaged));
  if (options.load_step < 0) drop_damaged(base, steps);
  if (auto copy = choose_copy(options, run, steps, damaged_copies)) {
    warn_of_initial_path(options, base);
    return *std::move(copy);
  }
  if (!steps.folders.empty()) {
    LoadChoice choice = choose_own(options, run, steps);
    choice.passed_over = steps.passed_over;
    if (choice.is_finished) return choice;
    warn_of_initial_path(options, base);
    spdlog::info("Checkpoints in {}: {}. {}Loading {} from {}", base.string(), step_list(steps.folders),
                 passed_over_text(steps), choice.model_only ? "the model only" : "the full state", choice.folder);
    warn_if_not_finite(run, choice);
    return choice;
  }
  if (options.load_step >= 0)
    throw CheckpointError("checkpoint.load_step = " + std::to_string(options.load_step) + ", but " + base.string() +
                          " has no checkpoints");
  LoadChoice choice = choose_initial(options, run);
  choice.passed_over = steps.passed_over;
  return choice;
}

LoadChoice choose_good(const RunFacts& run, const std::vector<int>& damaged, const std::vector<int>& damaged_copies) {
  const LoadChoice copy = newest_copy(run, damaged_copies);
  recover_replacements(run.base);
  const std::vector<int> steps = steps_in(run.base);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path folder = step_folder(run.base, *step);
    if (*step < copy.step) return copy;
    if (*step == 0 || std::ranges::count(damaged, *step) > 0 || !is_complete(folder) || !is_of_numbers(folder))
      continue;
    if (has_readable_metadata(folder) && is_full(folder)) return {folder.string(), *step, false};
  }
  return copy;
}

}  // namespace titan::checkpoint
