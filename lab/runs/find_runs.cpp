#include "lab/runs/find_runs.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "config/keys/field_values.h"
#include "config/keys/fields.h"
#include "config/load.h"

namespace titan::runs {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / layout::kStepsFile, error);
}

std::vector<fs::path> runs_inside(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && is_run(entry.path())) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// Normalizes a path, since "." and "runs/" name folders too.
fs::path normal(const std::string& word) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(word, error);
  return error ? fs::path(word) : whole;
}

std::vector<fs::path> runs_of(const std::string& word) {
  const fs::path path = normal(word);
  if (is_run(path)) return {path};
  // metrics.jsonl and checkpoint/ are in the run's folder, a step folder is one level below.
  const fs::path parent = path.parent_path();
  std::error_code error;
  const bool is_step = layout::step_of(path.filename().string()).has_value();
  if (fs::exists(path, error) && is_run(parent) && path.filename() != parent.filename()) return {parent};
  if (is_step && is_run(parent.parent_path())) return {parent.parent_path()};
  auto inside = runs_inside(path);
  if (!inside.empty()) return inside;
  const std::string found = !fs::exists(path, error)        ? "it is not there"
                            : fs::is_directory(path, error) ? "it has no metrics.jsonl, nor has a folder inside it"
                                                            : "it is a file";
  throw DataError(
      "error: " + word +
      ": expected the folder of a run (its job.dump_folder, where metrics.jsonl is) or a folder of such, as a "
      "sweep makes; " +
      found);
}

fs::path common_parent(const std::vector<fs::path>& paths) {
  fs::path common = paths.front().parent_path();
  const auto holds = [&](const fs::path& path) {
    return std::mismatch(common.begin(), common.end(), path.begin(), path.end()).first == common.end();
  };
  while (!std::ranges::all_of(paths, holds)) common = common.parent_path();
  return common;
}

bool is_place(const std::string& key) { return key == "job.config_file" || key == "job.dump_folder"; }

}  // namespace

std::vector<RunFolder> find_runs(std::span<const std::string> words) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  for (const auto& word : words)
    for (auto& path : runs_of(word))
      if (seen.insert(path).second) paths.push_back(std::move(path));
  std::vector<RunFolder> out;
  const fs::path common = common_parent(paths);
  for (const auto& path : paths) out.push_back({path, path.lexically_relative(common).generic_string()});
  return out;
}

std::optional<config::JobConfig> read_run_config(const fs::path& folder, std::string& why) {
  const fs::path file = folder / layout::kConfigFile;
  try {
    return config::load_job_config_text(read_file(file), file.string()).config;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    why = text.substr(0, text.find('\n'));
    return std::nullopt;
  }
}

std::vector<ConfigDifference> differences(std::span<const config::JobConfig> configs) {
  std::vector<ConfigDifference> out;
  for (const config::Field& field : config::fields()) {
    if (is_place(field.key)) continue;
    ConfigDifference row{field.key, {}};
    for (const auto& config : configs) row.values.push_back(config::to_toml_value(field.get(config)));
    const auto is_other = [&](const std::string& value) { return value != row.values.front(); };
    if (std::ranges::any_of(row.values, is_other)) out.push_back(std::move(row));
  }
  return out;
}

std::vector<ConfigDifference> changes_from_defaults(const config::JobConfig& config) {
  const config::JobConfig both[] = {config::JobConfig{}, config};
  return differences(both);
}

}  // namespace titan::runs
