#include "checkpoint/checkpointer.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/choose.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/format/cast.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/discard.h"
#include "checkpoint/memory_copies.h"
#include "checkpoint/torchtitan_keys.h"
#include "checkpoint/whole/load_weights.h"
#include "checkpoint/whole/save_weights.h"
#include "distributed/config_dtype.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Groups that checkpoint.exclude_from_loading may name.
constexpr const char* kStateGroups[] = {"model", "optimizer", "lr_scheduler", "dataloader", "train_state"};

std::string group_of(const Item& item) {
  const StatePath& path = item_path(item);
  const auto* first = path.empty() ? nullptr : std::get_if<std::string>(&path[0]);
  if (first != nullptr && path.size() > 1 && (*first == "titan" || std::ranges::count(kStateGroups, *first) > 0))
    return *first;
  return "model";
}

}  // namespace

Checkpointer::Checkpointer(config::Checkpoint options, RunFacts run, Ranks& ranks, CheckpointState& state,
                           Ranks* background)
    : options_(std::move(options)),
      run_(std::move(run)),
      is_async_(options_.enable && options_.async_mode != "disabled"),
      ranks_(ranks),
      state_(state),
      background_(background),
      last_save_(run_.now()) {
  TITAN_CHECK(background_ || !(is_async_ || makes_copies()), "saves beside training need a group of their own");
}

bool Checkpointer::should_save(int step, int last_step) const {
  if (!saves()) return false;
  return step == last_step || step % options_.interval == 0 || (step == 1 && options_.enable_first_step_checkpoint);
}

bool Checkpointer::is_time_due() const {
  if (!saves() || options_.interval_minutes <= 0) return false;
  return seconds_between(last_save_, run_.now()) >= 60 * options_.interval_minutes;
}

bool Checkpointer::save(int step, int last_step, bool time_due) {
  try {
    saver_.check();
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
  if (!should_save(step, last_step) && !time_due) return false;
  const bool is_last = step == last_step;
  write(step, is_last && options_.last_save_model_only, is_last, !is_last);
  return true;
}

bool Checkpointer::should_copy(int step, int last_step) const {
  return makes_copies() && weights_finite_ && step % options_.memory_interval == 0 && !should_save(step, last_step);
}

void Checkpointer::copy_to_memory(int step) {
  const Save save{.step = step, .model_only = false, .make_room = false, .options = save_options()};
  finish();
  writes_copy_ = true;
  saver_.start(state_.items(/*model_only=*/false),
               [this, save](const std::vector<Item>& items) { write_copy(save, items, *background_); });
}

void Checkpointer::reserve_memory() {
  if (saves() && (is_async_ || makes_copies())) saver_.reserve(state_.items(/*model_only=*/false));
}

void Checkpointer::remove_copies() const {
  if (saves() && ranks_.rank() == 0) remove_outdated_copies(find_copies(run_.memory_folder, run_.base), run_.base);
}

void Checkpointer::save_full(int step, bool makes_room) {
  if (saves()) write(step, false, true, makes_room);
}

void Checkpointer::save_seed() { write(0, options_.last_save_model_only, true, false); }

void Checkpointer::finish() {
  try {
    saver_.wait();
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
}

// As in TorchTitan, the last save removes nothing: a full state to resume from remains next to a model-only one.
void Checkpointer::write(int step, bool model_only, bool is_last, bool makes_room) {
  last_save_ = run_.now();
  const Save save{.step = step, .model_only = model_only, .make_room = makes_room, .options = save_options()};
  try {
    // Waits separately, so that ranks which learned of a failed save at different steps all reach start() below.
    if (is_async_ || makes_copies()) finish();
    is_last_save_ = is_last;
    writes_copy_ = false;
    if (!is_async_) return write_items(save, state_.items(model_only), ranks_);
    saver_.start(state_.items(model_only),
                 [this, save](const std::vector<Item>& items) { write_items(save, items, *background_); });
  } catch (const CheckpointError& error) {
    handle_failed_save(error);
  }
}

// A save throws on all ranks or on none, so all ranks decide the same.
void Checkpointer::handle_failed_save(const CheckpointError& error) const {
  if (options_.on_save_error == "stop" || is_last_save_) throw error;
  if (ranks_.rank() == 0)
    spdlog::error(
        "{}. Training goes on without this checkpoint (checkpoint.on_save_error = \"warn\"); the ones before "
        "it are intact",
        error.what());
}

void Checkpointer::write_items(const Save& save, const std::vector<Item>& items, Ranks& ranks) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path folder = step_folder(run_.base, save.step);
  bool replaces = false;  // on rank 0
  on_rank_0(ranks, "saving checkpoint " + folder.string() + " failed", [&] {
    prepare_base(save.step);
    replaces = is_taken(folder);
    return std::string();
  });
  const std::uint64_t bytes = save.model_only && save.step > 0 ? export_whole_model(folder, items, ranks, save.options)
                                                               : checkpoint::save(folder, items, ranks, save.options);
  const double seconds = seconds_between(start, std::chrono::steady_clock::now());
  if (ranks.rank() == 0) {
    const std::string stall =
        is_async_ ? fmt::format(" in the background; training stalled for {:.3f} s", saver_.stall_seconds()) : "";
    spdlog::info("Saved checkpoint {} ({}, {}) in {:.2f} s{}", folder.string(),
                 save.model_only ? "model only" : "full state", format_bytes(static_cast<double>(bytes)), seconds,
                 stall);
    if (replaces) say_replaced(folder, save.step);
    if (save.make_room) remove_old_steps(run_.base, static_cast<int>(options_.keep_latest_k), keep_rule_);
    known_.learn(run_.base);
  }
}

// Writes a copy in memory. All ranks fail or none, and all go on.
void Checkpointer::write_copy(const Save& save, const std::vector<Item>& items, Ranks& ranks) {
  const auto start = std::chrono::steady_clock::now();
  try {
    const fs::path folder = on_rank_0(ranks, "making a place for it failed", [&] { return prepare_copies().string(); });
    SaveOptions options = save.options;
    options.check_room = [&](std::uint64_t bytes) { check_room_for_copy(folder, fs::space(folder), bytes); };
    const std::uint64_t bytes = checkpoint::save(step_folder(folder, save.step), items, ranks, options);
    if (ranks.rank() != 0) return;
    if (!made_a_copy_ || copies_fail_)
      spdlog::info("Copied the state of step {} to memory, {} ({}), in {:.2f} s; training stalled for {:.3f} s. {}",
                   save.step, folder.string(), format_bytes(static_cast<double>(bytes)),
                   seconds_between(start, std::chrono::steady_clock::now()), saver_.stall_seconds(),
                   made_a_copy_ ? "Copies are made again" : "The next copies are not logged, but are in events.jsonl");
    made_a_copy_ = true;
    copies_fail_ = false;
  } catch (const CheckpointError& error) {
    warn_of_failed_copy(error, save.step);
  }
}

// Returns the folder for the next copy. Called on rank 0.
fs::path Checkpointer::prepare_copies() const {
  if (run_.check_base) run_.check_base();
  fs::path folder = make_copies_folder(run_.memory_folder, run_.base);
  make_place(folder);
  return folder;
}

void Checkpointer::warn_of_failed_copy(const CheckpointError& error, int step) {
  if (ranks_.rank() == 0 && !copies_fail_)
    spdlog::warn(
        "step {} could not be copied to memory: {}. Training goes on, and the next copies are tried in silence", step,
        error.what());
  copies_fail_ = true;
}

// Called on rank 0 before each save. A machine that loses its power must not keep a checkpoint and lose rows of the
// steps before it, which no start would write again.
void Checkpointer::prepare_base(int step) {
  if (run_.check_base) run_.check_base();
  if (run_.sync_rows) run_.sync_rows();
  if (const auto missing = known_.take_missing(run_.base); !missing.empty()) {
    const bool is_one = missing.size() == 1;
    const auto& left = known_.steps();
    spdlog::warn(
        "{} {} gone from {}: something other than this run has removed {}. Until the save of step {} is complete, a "
        "start {}",
        step_list(missing), is_one ? "is" : "are", run_.base.string(), is_one ? "it" : "them", step,
        left.empty() ? "would begin anew" : "can only go on from " + step_list({left.back()}));
  }
  clean_up(run_.base);
}

void Checkpointer::say_replaced(const fs::path& folder, int step) const {
  const auto found = passed_over_.find(step);
  if (found == passed_over_.end()) {
    spdlog::info("{} was there already; this save has replaced it", folder.string());
  } else {
    spdlog::warn("{} was {} when this run looked for a checkpoint to load; this save has replaced it", folder.string(),
                 found->second);
  }
}

// If the export's dtype cannot hold the weights, saves them unchanged and throws: only the format is lost.
std::uint64_t Checkpointer::export_whole_model(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks,
                                               const SaveOptions& options) const {
  if (!options_.allow_export_overflow) {
    const c10::ScalarType dtype = dist::dtype_of(options_.export_dtype);
    try {
      on_every_rank(ranks, "exporting " + folder.string() + " failed", [&] {
        for (const Item& item : items) {
          const auto* tensor = std::get_if<TensorItem>(&item);
          const std::string lost = tensor == nullptr ? "" : overflow_text(tensor->local, dtype);
          if (!lost.empty()) throw CheckpointError(tensor->fqn + " holds " + lost);
        }
        return std::string();
      });
    } catch (const CheckpointError& error) {
      checkpoint::save(folder, items, ranks, options);
      throw CheckpointError(
          std::string(error.what()) + ". The weights were saved in " + folder.string() +
          " as they are instead (dcp, not cast): titan-train convert " + folder.string() +
          " TARGET --export-dtype bfloat16 makes an export of them; checkpoint.allow_export_overflow " +
          "= true writes infinities");
    }
  }
  return export_model(folder, items, ranks, options);
}

std::uint64_t Checkpointer::export_model(const fs::path& folder, const std::vector<Item>& items, Ranks& ranks,
                                         const SaveOptions& options) const {
  const c10::ScalarType dtype = dist::dtype_of(options_.export_dtype);
  if (options_.last_save_in_hf) return save_hugging_face(folder, items, run_.hf_format, dtype, ranks);
  if (options_.last_save_as == "file") return save_weights(folder, items, dtype, ranks, options);
  std::vector<Item> cast = items;
  for (Item& item : cast) {
    if (auto* tensor = std::get_if<TensorItem>(&item)) tensor->local = checkpoint::cast(tensor->local, dtype);
  }
  return checkpoint::save(folder, cast, ranks, options);
}

SaveOptions Checkpointer::save_options() const {
  SaveOptions options{.files_per_rank = static_cast<int>(options_.files_per_rank), .texts = run_.texts};
  if (!weights_finite_) options.texts[layout::kNotFiniteFile] = "The weights hold NaN or infinity.\n";
  return options;
}

bool Checkpointer::is_excluded(const Item& item) const {
  return std::ranges::count(options_.exclude_from_loading, group_of(item)) > 0;
}

std::vector<Item> Checkpointer::wanted_items(bool model_only) const {
  std::vector<Item> items = state_.items(model_only);
  // As in TorchTitan, exclusions do not apply to a model-only load.
  if (!model_only) std::erase_if(items, [&](const Item& item) { return is_excluded(item); });
  return items;
}

// Compares a few saved values with this run before anything is overwritten.
void Checkpointer::check_fits(const LoadChoice& choice) {
  std::vector<Item> probes = state_.probes();
  std::erase_if(probes, [&](const Item& item) { return is_excluded(item); });
  const Values saved = checkpoint::load(choice.folder, probes, ranks_);
  on_rank_0(ranks_, choice.folder + " cannot be resumed", [&] {
    state_.check_fits(saved);
    return std::string();
  });
}

// Compares facts that shapes do not show. Skipped if the folder has no config.json.
void Checkpointer::check_config(const fs::path& folder) const {
  on_rank_0(ranks_, "loading " + folder.string() + " failed", [&] {
    const fs::path file = (fs::is_directory(folder) ? folder : folder.parent_path()) / "config.json";
    if (!run_.hf_format.naming.differences || !fs::is_regular_file(file)) return std::string();
    for (const std::string& changed : changed_texts(file.parent_path()))
      spdlog::warn("{}: {}", file.parent_path().string(), changed);
    std::vector<std::string> refused, keys;
    for (const auto& [key, theirs, ours] : run_.hf_format.naming.differences(read_file(file), file.string())) {
      const std::string text = key + " is " + theirs + " there, " + ours + " here";
      if (std::ranges::count(options_.allow_changed, key) > 0) {
        spdlog::warn("{} describes another model, as checkpoint.allow_changed allows: {}", file.string(), text);
      } else {
        refused.push_back(text);
        keys.push_back("\"" + key + "\"");
      }
    }
    if (!refused.empty())
      throw CheckpointError(file.string() + " describes another model than the configuration: " + join(refused, "; ") +
                            ". Set these to its values, or, if the change is meant, set checkpoint.allow_changed = [" +
                            join(keys, ", ") + "]");
    return std::string();
  });
}

Loaded Checkpointer::load_choice(const LoadChoice& choice) {
  if (choice.is_finished) return {.step = choice.step, .is_finished = true};
  const std::vector<Item> items = wanted_items(choice.model_only);
  if (choice.in_hf) {
    check_config(choice.folder);
    load_hugging_face(choice.folder, items, run_.hf_format, ranks_, /*all_weights=*/true);
    state_.restored({}, choice.model_only);
    return {.step = 0, .has_weights = true};
  }
  if (choice.is_file) {
    load_weights(choice.folder, items, ranks_);
    state_.restored({}, choice.model_only);
    return {.step = 0, .has_weights = true};
  }
  if (!choice.model_only) {
    check_fits(choice);
    if (!options_.exclude_from_loading.empty() && ranks_.rank() == 0)
      spdlog::info("Not loaded, as checkpoint.exclude_from_loading asks: {}",
                   join(options_.exclude_from_loading, ", "));
  }
  const bool all_weights = choice.model_only || std::ranges::count(options_.exclude_from_loading, "model") == 0;
  const Values values = checkpoint::load(choice.folder, items, ranks_, {.all_weights = all_weights});
  state_.restored(values, choice.model_only);
  if (choice.model_only) return {.step = 0, .has_weights = all_weights};
  const auto step = values.find(kStepKey);
  return {.step = step == values.end() ? choice.step : static_cast<int>(step->second.as_int(kStepKey)),
          .has_weights = all_weights};
}

bool Checkpointer::may_fall_back(const LoadChoice& choice) const {
  return choice.in_memory || (options_.load_step < 0 && fs::path(choice.folder) == step_folder(run_.base, choice.step));
}

Loaded Checkpointer::load() {
  if (!options_.enable) return {};
  Damaged damaged;
  for (;;) {
    const std::string reply = on_rank_0(ranks_, "choosing a checkpoint to load failed", [&] {
      auto choice = encode_choice(choose_load(options_, run_, damaged.saves, damaged.copies));
      known_.learn(run_.base);
      return choice;
    });
    const LoadChoice choice = decode_choice(reply);
    passed_over_ = choice.passed_over;
    try {
      const Loaded loaded = choice.folder.empty() ? Loaded() : load_choice(choice);
      forget_later_copies(choice);
      return loaded;
    } catch (const DamagedCheckpoint& error) {  // on every rank
      if (!may_fall_back(choice)) throw;
      warn_of_damage(error, choice);
      damaged.add(choice);
    }
  }
}

void Checkpointer::warn_of_damage(const DamagedCheckpoint& error, const LoadChoice& choice) {
  if (!choice.in_memory) passed_over_[choice.step] = "damaged";
  if (ranks_.rank() == 0)
    spdlog::error("{}. Falling back to the newest intact {} step {}", error.what(),
                  choice.in_memory ? "copy or checkpoint up to" : "checkpoint before", choice.step);
}

// Training goes on from `loaded`: copies of later steps are of a past that is given up, or damaged.
void Checkpointer::forget_later_copies(const LoadChoice& loaded) const {
  if (saves() && ranks_.rank() == 0)
    remove_copies_after(find_copies(run_.memory_folder, run_.base), loaded.model_only ? 0 : loaded.step);
}

std::string Checkpointer::newest_good() const { return saves() ? choose_good(run_, /*damaged=*/{}).folder : ""; }

// Gives the folder a name that readers ignore, so that no later start resumes from it; removes a copy in memory.
void Checkpointer::move_aside(const LoadChoice& choice) {
  const fs::path folder = choice.folder;
  on_rank_0(ranks_, "moving the checkpoint " + folder.string() + " aside failed", [&] {
    if (choice.in_memory) {
      remove_copies_after(folder.parent_path(), choice.step - 1);
      spdlog::error("the copy in memory of step {} holds bits that had changed, and is removed", choice.step);
      return std::string();
    }
    const fs::path aside = folder.string() + ".refused";
    discard(aside);
    fs::rename(folder, aside);
    known_.learn(run_.base);
    spdlog::error(
        "{} holds bits that had changed before or while they were saved. It is now {}: no run resumes from it",
        folder.string(), aside.string());
    return std::string();
  });
}

std::optional<int> Checkpointer::roll_back(const RollBackRule& rule) {
  finish();
  Damaged damaged;
  for (;;) {
    const std::string reply = on_rank_0(ranks_, "choosing a checkpoint to go back to failed", [&] {
      return encode_choice(choose_good(run_, damaged.saves, damaged.copies));
    });
    const LoadChoice choice = decode_choice(reply);
    if (choice.folder.empty()) return std::nullopt;
    std::vector<Item> items = state_.items(/*model_only=*/false);
    if (!rule.with_data) std::erase_if(items, [](const Item& item) { return group_of(item) == "dataloader"; });
    try {
      state_.restored(checkpoint::load(choice.folder, items, ranks_, {.all_weights = true}), /*model_only=*/false);
      if (!rule.accepts || rule.accepts(choice.step)) {
        forget_later_copies(choice);
        return choice.step;
      }
      move_aside(choice);
      damaged.add(choice);
    } catch (const DamagedCheckpoint& error) {  // on every rank
      warn_of_damage(error, choice);
      damaged.add(choice);
    }
  }
}

}  // namespace titan::checkpoint
