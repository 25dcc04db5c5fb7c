#include "config/paths.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <optional>

#include "base/fs.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "config/keys/values/evaluation_tasks.h"

namespace titan::config {
namespace {

namespace fs = std::filesystem;
using Faults = std::vector<Fault>;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Adds "looked from /home/me" if the path is relative.
std::string looked_from(const std::string& path) {
  return fs::path(path).is_absolute() ? "" : ", looked from " + fs::current_path().string();
}

Fault missing(const std::string& key, const std::string& path) {
  return {key + " = \"" + path + "\": there is no such file or folder" + looked_from(path), {key}};
}

// True if any file name begins with `prefix`: an "indexed" dataset is named by the common prefix of its files.
bool exists_with_suffix(const fs::path& prefix) {
  std::error_code error;
  const fs::path folder = prefix.parent_path().empty() ? "." : prefix.parent_path();
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(prefix.filename().string())) return true;
  return false;
}

void check_datasets(const JobConfig& config, Faults& errors) {
  const Training& t = config.training;
  const Validation& v = config.validation;
  if (!t.dataset_path && t.dataset_mix.empty() && !config.job.config_file) {
    errors.push_back(missing_dataset("training", ""));
    errors.back().message += ", or give a configuration with --config FILE (configs/ has some)";
  } else if (t.dataset_mix.empty() && !dataset_path(t.dataset, t.dataset_path)) {
    errors.push_back(missing_dataset("training", t.dataset));
  }
  if (v.enable && !dataset_path(v.dataset, v.dataset_path)) errors.push_back(missing_dataset("validation", v.dataset));
  for (const NamedDataset& data : named_datasets(config)) {
    const bool by_prefix = lower_case(data.kind) == "indexed" && exists_with_suffix(data.path);
    const bool is_torchtitans = data.key == "training.dataset_path" && !t.dataset_path;
    const bool by_pattern = lower_case(data.kind) != "indexed" && !matches_of(data.path).empty();
    if (is_there(data.path) || by_prefix || by_pattern || (is_torchtitans && !config.job.config_file)) continue;
    errors.push_back(is_torchtitans ? Fault{data.key + " is not set, and in " + data.path +
                                                ", where TorchTitan has the data of \"" + data.kind +
                                                "\", there is none; set it to a file or folder",
                                            {data.key}}
                                    : missing(data.key, data.path));
  }
}

void check_tasks(const JobConfig& config, Faults& errors) {
  const auto& texts = config.evaluation.tasks;
  const auto tasks = parse_task_entries(texts, config.evaluation.num_fewshot);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    for (const std::string& path : {tasks[i].path, tasks[i].examples}) {
      if (path.empty() || is_there(path) || !matches_of(path).empty()) continue;
      errors.push_back(
          {"evaluation.tasks: \"" + texts[i] + "\": there is no file or folder " + path + looked_from(path),
           {"evaluation.tasks"}});
    }
}

// Refuses a folder in which the system would not allow a file of the name `longest`, which the run writes there later.
void check_length(const fs::path& folder, const std::string& longest, const std::string& key, Faults& errors) {
  const auto fail = [&](const std::string& what, std::size_t found, std::size_t most) {
    errors.push_back({key + ": " + what + " has " + std::to_string(found) + " characters, and at most " +
                          std::to_string(most) + " leave room for what a run writes; choose a shorter one",
                      {key}});
  };
  const std::size_t most = PATH_MAX - 2 - longest.size();  // with a slash and the zero at the end
  if (folder.native().size() > most)
    fail("the path " + folder.string().substr(0, 60) + "...", folder.native().size(), most);
  for (const fs::path& name : folder)
    if (name.native().size() > NAME_MAX)
      fail("the name " + name.string().substr(0, 60) + "...", name.native().size(), NAME_MAX);
}

// A run with names that are too long would fail only at its first row or its first save.
void check_lengths(const JobConfig& config, Faults& errors) {
  check_length(config.job.dump_folder, std::string(layout::kChatTemplateFile) + ".tmp", "job.dump_folder", errors);
  if (!errors.empty() || !saves_checkpoints(config.checkpoint)) return;
  const std::string longest = layout::step_name(config.training.steps) + ".tmp/" + layout::kHuggingFaceIndex + ".tmp";
  const bool is_of_dump = !fs::path(config.checkpoint.folder).is_absolute();
  check_length(checkpoint_folder(config), longest, is_of_dump ? "job.dump_folder" : "checkpoint.folder", errors);
}

// The run creates the folder when it starts; until then the nearest existing parent tells whether that will work.
void check_dump_folder(const std::string& folder, Faults& errors) {
  const auto fail = [&](const std::string& why) {
    errors.push_back({"job.dump_folder = \"" + folder + "\": " + why, {"job.dump_folder"}});
  };
  if (folder == "~" || folder.starts_with("~/"))
    return fail("~ is not expanded here (nor by the shell after \"=\"); write the path of your home folder");
  fs::path at = fs::absolute(folder);
  while (!is_there(at) && !is_link(at) && at.has_relative_path()) at = at.parent_path();
  if (is_link(at) && !is_there(at)) {
    fail(at.string() + " is a link to " + fs::read_symlink(at).string() +
         ", which is not there; make that folder, or choose another");
  } else if (!is_folder(at)) {
    fail(at.string() + " is a file, not a folder; choose another");
  } else if (access(at.c_str(), W_OK | X_OK) != 0) {
    fail("no permission to write in " + at.string() + "; choose another");
  }
}

std::vector<std::int64_t> saved_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto step = layout::step_of(entry.path().filename().string())) steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

// True if a run has left more in `folder` than the sign of its life, such as checkpoints or the id of its copies.
bool holds_a_run(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!entry.path().filename().string().starts_with(layout::kCheckpointsOwnerFile)) return true;
  return false;
}

void check_checkpoint(const JobConfig& config, Faults& errors) {
  const Checkpoint& c = config.checkpoint;
  if (!c.enable) return;
  const fs::path folder = checkpoint_folder(config);
  if (c.load_step >= 0) {
    const auto steps = saved_steps(folder);
    std::vector<std::string> names;
    for (const std::int64_t step : steps) names.push_back(std::to_string(step));
    if (std::ranges::count(steps, c.load_step) == 0)
      errors.push_back(
          {"checkpoint.load_step = " + std::to_string(c.load_step) + ", but " + folder.string() + " has " +
               (names.empty() ? "no checkpoints; leave it out to start anew"
                              : "the steps " + join(names, ", ") + "; use one of them, or -1 for the latest"),
           {"checkpoint.load_step"}});
  }
  if (c.initial_load_path && !holds_a_run(folder) && !is_there(*c.initial_load_path))
    errors.push_back(missing("checkpoint.initial_load_path", *c.initial_load_path));
}

}  // namespace

fs::path checkpoint_folder(const JobConfig& config) {
  return fs::path(config.job.dump_folder) / config.checkpoint.folder;
}

bool saves_checkpoints(const Checkpoint& options) { return options.enable && !options.load_only; }

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) found = path.lexically_normal();
  return found.has_filename() ? found : found.parent_path();
}

bool is_outside_dump_folder(const fs::path& folder, const JobConfig& config) {
  const fs::path from_dump = real_path(folder).lexically_relative(real_path(config.job.dump_folder));
  return from_dump.empty() || *from_dump.begin() == "..";
}

fs::path initial_hugging_face_folder(const JobConfig& config) {
  const Checkpoint& c = config.checkpoint;
  if (!c.enable || !c.initial_load_in_hf) return {};
  fs::path weights = c.initial_load_path.value_or("");
  if (weights.empty()) weights = config.model.hf_assets_path;
  return weights.extension() == ".safetensors" ? weights.parent_path() : weights;
}

std::vector<Fault> find_wrong_paths(const JobConfig& config) {
  Faults errors;
  check_dump_folder(config.job.dump_folder, errors);
  check_lengths(config, errors);
  check_datasets(config, errors);
  check_tasks(config, errors);
  check_checkpoint(config, errors);
  return errors;
}

}  // namespace titan::config
