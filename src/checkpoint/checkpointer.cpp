#include "checkpoint/checkpointer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "checkpoint/torchtitan_keys.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr const char* kStepKey = "train_state.step";
constexpr const char* kDataRanksKey = "dataloader.world_size";   // of TorchTitan's order
constexpr const char* kDataOrderKey = "dataloader.titan.order";  // of the elastic order

const std::vector<std::string>& state_groups() {
  static const std::vector<std::string> kGroups = {"model", "optimizer", "lr_scheduler", "dataloader", "train_state"};
  return kGroups;
}

// N for exactly "step-N<suffix>".
std::optional<int> step_of(const std::string& name, std::string_view suffix = "") {
  if (!name.starts_with(kStepPrefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() <= kStepPrefix.size() + suffix.size()) return std::nullopt;
  const std::string digits = name.substr(kStepPrefix.size(), name.size() - kStepPrefix.size() - suffix.size());
  int step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0 || std::to_string(step) != digits)
    return std::nullopt;
  return step;
}

// All N with a folder "step-N<suffix>", ascending.
std::vector<int> steps_in(const fs::path& base, std::string_view suffix = "") {
  std::vector<int> steps;
  if (!fs::is_directory(base)) return steps;
  for (const auto& entry : fs::directory_iterator(base)) {
    const auto step = step_of(entry.path().filename().string(), suffix);
    if (step && entry.is_directory()) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string step_list(const std::vector<int>& steps) {
  std::vector<std::string> names;
  for (const int step : steps) names.push_back(std::string(kStepPrefix) + std::to_string(step));
  return names.empty() ? "none" : join(names, ", ");
}

// A full state can be resumed; a model-only one lacks the trainer's own keys.
bool is_full(const fs::path& folder) { return read_metadata(folder).find(kStepKey) != nullptr; }

bool has_readable_metadata(const fs::path& folder) {
  try {
    read_metadata(folder);
    return true;
  } catch (const CheckpointError& error) {
    spdlog::error("{} is damaged, looking at older checkpoints: {}", folder.string(), error.what());
    return false;
  }
}

std::string group_of(const Item& item) {
  const StatePath& path = item_path(item);
  const auto* first = path.empty() ? nullptr : std::get_if<std::string>(&path[0]);
  if (first != nullptr && path.size() > 1 && (*first == "titan" || std::ranges::count(state_groups(), *first) > 0))
    return *first;
  return "model";
}

// Interrupted replacements are ended, unfinished saves removed.
void clean_up(const fs::path& base) {
  for (const int step : steps_in(base, ".replaced"))
    recover_replacement(base / (std::string(kStepPrefix) + std::to_string(step)));
  for (const int step : steps_in(base, ".tmp"))
    fs::remove_all(temporary_folder(base / (std::string(kStepPrefix) + std::to_string(step))));
}

}  // namespace

struct Checkpointer::Choice {
  std::string folder;  // "" = nothing to load
  int step = 0;
  bool model_only = false;
  bool in_hf = false;
};

Checkpointer::Checkpointer(CheckpointOptions options, Ranks& ranks, CheckpointState& state, Ranks* background)
    : options_(std::move(options)),
      ranks_(ranks),
      state_(state),
      background_(background),
      base_(fs::path(options_.dump_folder) / options_.folder) {
  TITAN_CHECK(background_ || !options_.async, "saves beside training need a group of their own");
  if (options_.interval < 1)
    throw ConfigError("checkpoint.interval is " + std::to_string(options_.interval) + ", expected 1 or more");
  if (options_.keep_latest_k < 0 || options_.keep_latest_k == 1)
    throw ConfigError(
        "checkpoint.keep_latest_k is " + std::to_string(options_.keep_latest_k) +
        ", expected 0 (keep all) or 2 and more: with 1 the only checkpoint would be removed for the next");
  if (options_.load_step < -1)
    throw ConfigError("checkpoint.load_step is " + std::to_string(options_.load_step) +
                      ", expected -1 (the newest) or a step");
  for (const std::string& name : options_.exclude_from_loading) {
    if (std::ranges::count(state_groups(), name) > 0) continue;
    const auto near = nearest_name(name, state_groups());
    throw ConfigError("checkpoint.exclude_from_loading: unknown name \"" + name + "\"" +
                      (near ? ", did you mean \"" + *near + "\"?" : "") + " Names are " + join(state_groups(), ", "));
  }
  if (options_.create_seed_checkpoint && !options_.enable)
    throw ConfigError("checkpoint.create_seed_checkpoint needs checkpoint.enable = true");
}

fs::path Checkpointer::step_folder(int step) const { return base_ / (std::string(kStepPrefix) + std::to_string(step)); }

bool Checkpointer::should_save(int step, int last_step) const {
  if (!options_.enable || options_.load_only) return false;
  return step == last_step || step % options_.interval == 0 || (step == 1 && options_.enable_first_step_checkpoint);
}

bool Checkpointer::save(int step, int last_step) {
  try {
    saver_.check();
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
  if (!should_save(step, last_step)) return false;
  const bool is_last = step == last_step;
  // As in TorchTitan the last save removes nothing: a full state to resume from stays beside a model-only one.
  write(step, is_last && options_.last_save_model_only, !is_last);
  return true;
}

void Checkpointer::save_full(int step) {
  if (options_.enable && !options_.load_only) write(step, false, false);
}

void Checkpointer::save_seed() { write(0, options_.last_save_model_only, false); }

void Checkpointer::finish() {
  try {
    saver_.wait();
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
}

void Checkpointer::write(int step, bool model_only, bool make_room) {
  try {
    if (!options_.async) return write_items(step, model_only, make_room, state_.items(model_only), ranks_);
    // On its own, so that ranks which heard of a failed save at different steps all come to start() below.
    finish();
    saver_.start(state_.items(model_only), [this, step, model_only, make_room](const std::vector<Item>& items) {
      write_items(step, model_only, make_room, items, *background_);
    });
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
}

// A save throws on every rank or on none, so the ranks decide alike.
void Checkpointer::handle_failed_save(const CheckpointError& error) const {
  if (options_.stop_on_failed_save) throw error;
  if (ranks_.rank() == 0)
    spdlog::error(
        "{}. Training goes on without this checkpoint (checkpoint.on_save_error = \"warn\"); the ones before "
        "it are intact",
        error.what());
}

void Checkpointer::write_items(int step, bool model_only, bool make_room, const std::vector<Item>& items,
                               Ranks& ranks) const {
  const auto start = std::chrono::steady_clock::now();
  const fs::path folder = step_folder(step);
  on_rank_0(ranks, "saving checkpoint " + folder.string() + " failed", [&] {
    clean_up(base_);
    return std::string();
  });
  const std::uint64_t bytes =
      model_only && step > 0 ? export_model(folder, items, ranks) : checkpoint::save(folder, items, ranks);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (ranks.rank() == 0) {
    const std::string stall =
        options_.async ? fmt::format(" beside training, which stood still for {:.3f} s", saver_.stall_seconds()) : "";
    spdlog::info("Saved checkpoint {} ({}, {}) in {:.2f} s{}", folder.string(),
                 model_only ? "model only" : "full state", format_bytes(static_cast<double>(bytes)), seconds.count(),
                 stall);
    if (make_room) remove_old_steps();
  }
}

std::uint64_t Checkpointer::export_model(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks) const {
  if (options_.last_save_in_hf)
    return save_hugging_face(folder, items, options_.hf_format, options_.export_dtype, ranks);
  std::vector<Item> cast = items;
  for (Item& item : cast) {
    if (auto* tensor = std::get_if<TensorItem>(&item)) tensor->local = tensor->local.to(options_.export_dtype);
  }
  return checkpoint::save(folder, cast, ranks);
}

void Checkpointer::remove_old_steps() const {
  if (options_.keep_latest_k == 0) return;
  try {
    std::vector<int> steps = steps_in(base_);
    std::erase_if(steps, [&](int step) { return !is_complete(step_folder(step)); });
    const auto keep = static_cast<std::size_t>(options_.keep_latest_k);
    const auto special = keep_rule_ ? keep_rule_(steps) : std::nullopt;
    for (std::size_t i = 0; i + keep < steps.size(); ++i) {
      if (steps[i] == special) continue;
      // Under its temporary name it is no checkpoint any more, so a kill in between leaves nothing half removed.
      fs::remove_all(temporary_folder(step_folder(steps[i])));
      fs::rename(step_folder(steps[i]), temporary_folder(step_folder(steps[i])));
      fs::remove_all(temporary_folder(step_folder(steps[i])));
    }
  } catch (const fs::filesystem_error& error) {
    spdlog::warn("Old checkpoints in {} could not be removed: {}", base_.string(), error.what());
  }
}

Checkpointer::Choice Checkpointer::choose_from_folder(const std::vector<int>& steps, std::vector<int> damaged) const {
  std::vector<int> complete = steps;
  std::erase_if(complete, [&](int step) { return !is_complete(step_folder(step)); });
  const std::string where = base_.string();
  if (options_.load_step < 0) {
    std::erase_if(complete, [&](int step) {
      if (std::ranges::count(damaged, step) > 0) return true;
      if (has_readable_metadata(step_folder(step))) return false;
      damaged.push_back(step);
      return true;
    });
    if (complete.empty() && !damaged.empty())
      throw CheckpointError("every checkpoint in " + where + " is damaged (" + step_list(damaged) +
                            "); the errors are above. Move the folder away to start from the beginning");
  }
  if (complete.empty())
    throw CheckpointError(where + " holds " + step_list(steps) +
                          ", but none of them is complete (a complete one has a .metadata file). Move the "
                          "folder away to start from the beginning");
  int step = complete.back();
  if (options_.load_step >= 0) {
    step = options_.load_step;
    if (std::ranges::count(complete, step) == 0)
      throw CheckpointError("checkpoint.load_step = " + std::to_string(step) + ", but " + where +
                            " has no complete checkpoint of that step; it has " + step_list(complete));
  }
  if (step == 0) return {step_folder(0).string(), 0, true};
  if (is_full(step_folder(step))) return {step_folder(step).string(), step, false};
  const std::string hint =
      "it holds the model only, as the last save of a run does by default. To go on training, set "
      "checkpoint.last_save_model_only = "
      "false before the run ends; to start a new run from these weights, set checkpoint.initial_load_path = \"" +
      step_folder(step).string() + "\" and another checkpoint.folder";
  if (options_.load_step >= 0) throw CheckpointError(step_folder(step).string() + " cannot be resumed: " + hint);
  for (auto older = complete.rbegin() + 1; older != complete.rend(); ++older) {
    if (*older == 0 || !is_full(step_folder(*older))) continue;
    spdlog::warn("{} holds the model only and cannot be resumed; resuming from step {} instead, the newest full state",
                 step_folder(step).string(), *older);
    return {step_folder(*older).string(), *older, false};
  }
  throw CheckpointError(step_folder(step).string() + " is the newest checkpoint and cannot be resumed: " + hint);
}

Checkpointer::Choice Checkpointer::choose(const std::vector<int>& damaged) const {
  for (const int step : steps_in(base_, ".replaced")) recover_replacement(step_folder(step));
  const std::vector<int> steps = steps_in(base_);
  if (!steps.empty()) {
    const Choice choice = choose_from_folder(steps, damaged);
    if (!options_.initial_load_path.empty())
      spdlog::warn("checkpoint.initial_load_path is ignored: {} has checkpoints, and a run goes on from its own",
                   base_.string());
    spdlog::info("Checkpoints in {}: {}. Loading {} from {}", base_.string(), step_list(steps),
                 choice.model_only ? "the model only" : "the full state", choice.folder);
    return choice;
  }
  if (options_.load_step > 0)
    throw CheckpointError("checkpoint.load_step = " + std::to_string(options_.load_step) + ", but " + base_.string() +
                          " has no checkpoints");
  return initial_choice();
}

Checkpointer::Choice Checkpointer::initial_choice() const {
  fs::path initial = options_.initial_load_path;
  if (options_.initial_load_in_hf) {
    if (initial.empty()) initial = options_.hf_assets_path;
    spdlog::info("No checkpoints in {}. Loading the model from the safetensors files of {}", base_.string(),
                 initial.string());
    return {initial.string(), 0, true, true};
  }
  if (initial.empty()) {
    spdlog::info("No checkpoints in {}; starting from initialized weights", base_.string());
    return {};
  }
  if (!is_complete(initial)) {
    const std::vector<int> inside = steps_in(initial);
    std::string hint;
    if (!inside.empty()) hint = "; it holds " + step_list(inside) + ": name one of them";
    if (fs::exists(initial / kHuggingFaceIndex))
      hint = "; it is in Hugging Face's format: set checkpoint.initial_load_in_hf = true";
    throw CheckpointError("checkpoint.initial_load_path = \"" + initial.string() +
                          "\" is not a complete checkpoint (no .metadata file in it)" + hint);
  }
  spdlog::info("No checkpoints in {}. Loading {} from checkpoint.initial_load_path {}", base_.string(),
               options_.initial_load_model_only ? "the model only" : "the full state", initial.string());
  return {initial.string(), 0, options_.initial_load_model_only};
}

std::vector<Item> Checkpointer::wanted_items(bool model_only) const {
  std::vector<Item> items = state_.items(model_only);
  // As in TorchTitan a load of the model alone takes no exclusions.
  if (!model_only)
    std::erase_if(
        items, [&](const Item& item) { return std::ranges::count(options_.exclude_from_loading, group_of(item)) > 0; });
  return items;
}

void Checkpointer::check_data_position(const fs::path& folder, const std::vector<Item>& items) {
  const auto wanted = [&](const char* key) {
    return std::ranges::find(items, key, [](const Item& item) { return item_fqn(item); });
  };
  const auto ranks = wanted(kDataRanksKey);
  const bool elastic = wanted(kDataOrderKey) != items.end();
  if (ranks == items.end() && !elastic) return;
  std::vector<Item> probe;
  for (const char* key : {kDataRanksKey, kDataOrderKey}) probe.push_back(ValueItem{key, group_path(key), {}, true});
  const Values saved = checkpoint::load(folder, probe, ranks_);
  const std::string restart =
      ", or set checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data from the beginning";
  if (saved.contains(kDataOrderKey) != elastic) {
    const auto name = [](bool is_elastic) { return is_elastic ? "elastic" : "torchtitan"; };
    throw CheckpointError(folder.string() +
                          ": the dataloader state is not one of the order in which this run reads its " +
                          "data; set training.data_order = \"" + name(!elastic) + "\"" + restart);
  }
  if (elastic || !saved.contains(kDataRanksKey)) return;
  const std::int64_t then = saved.at(kDataRanksKey).as_int(kDataRanksKey);
  const std::int64_t now = std::get<ValueItem>(*ranks).value.as_int(kDataRanksKey);
  if (then != now)
    throw CheckpointError(folder.string() + ": the dataloader state was saved at " + std::to_string(then) +
                          " data-parallel ranks, this run has " + std::to_string(now) + "; run at " +
                          std::to_string(then) + restart);
}

std::optional<int> Checkpointer::load_choice(const Choice& choice) {
  const std::vector<Item> items = wanted_items(choice.model_only);
  if (choice.in_hf) {
    load_hugging_face(choice.folder, items, options_.hf_format, ranks_);
    state_.restored({}, choice.model_only);
    return 0;
  }
  if (!choice.model_only) {
    check_data_position(choice.folder, items);
    if (!options_.exclude_from_loading.empty() && ranks_.rank() == 0)
      spdlog::info("Not loaded, as checkpoint.exclude_from_loading asks: {}",
                   join(options_.exclude_from_loading, ", "));
  }
  const Values values = checkpoint::load(choice.folder, items, ranks_);
  state_.restored(values, choice.model_only);
  if (choice.model_only) return 0;
  const auto step = values.find(kStepKey);
  return step == values.end() ? choice.step : static_cast<int>(step->second.as_int(kStepKey));
}

bool Checkpointer::may_fall_back(const Choice& choice) const {
  return options_.load_step < 0 && fs::path(choice.folder) == step_folder(choice.step);
}

std::optional<int> Checkpointer::load() {
  if (!options_.enable) return std::nullopt;
  std::vector<int> damaged;
  for (;;) {
    const std::string reply = on_rank_0(ranks_, "choosing a checkpoint to load failed", [&] {
      const Choice choice = choose(damaged);
      return nlohmann::json({choice.folder, choice.step, choice.model_only, choice.in_hf}).dump();
    });
    const auto json = nlohmann::json::parse(reply);
    const Choice choice{json[0].get<std::string>(), json[1].get<int>(), json[2].get<bool>(), json[3].get<bool>()};
    if (choice.folder.empty()) return std::nullopt;
    try {
      return load_choice(choice);
    } catch (const DamagedCheckpoint& error) {  // on every rank
      if (!may_fall_back(choice)) throw;
      if (ranks_.rank() == 0)
        spdlog::error("{}. Falling back to the newest intact checkpoint before step {}", error.what(), choice.step);
      damaged.push_back(choice.step);
    }
  }
}

}  // namespace titan::checkpoint
