// When to save, what to load, which folders to keep. The state itself comes from the trainer through CheckpointState.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/async_saver.h"
#include "checkpoint/choose.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/run_facts.h"
#include "config/job_config.h"

namespace titan::checkpoint {

// The trainer's side.
class CheckpointState {
 public:
  virtual ~CheckpointState() = default;
  // This rank's items, for a save with their content, for a load as the places to fill. `model_only`: the parameters
  // alone.
  virtual std::vector<Item> items(bool model_only) = 0;
  // Optional values of a full checkpoint that check_fits() looks at.
  virtual std::vector<Item> probes() = 0;
  // On rank 0, before a full state overwrites anything: throws CheckpointError when this run must not go on from it.
  // What the checkpoint lacks or exclude_from_loading names is not among the values.
  virtual void check_fits(const Values& saved) = 0;
  // After the tensors were filled: the values that came with them. What exclude_from_loading names is absent.
  virtual void restored(const Values& values, bool model_only) = 0;
};

struct Loaded {
  std::optional<int> step;   // after which training continues: 0 when only the model was loaded; nothing: nothing was
  bool has_weights = false;  // of every parameter: not so where exclude_from_loading names the model
  bool is_finished = false;  // nothing was loaded: `step` is the run's last one, which was saved without its state
};

class Checkpointer {
 public:
  // `ranks`, `background` and `state` must outlive this. `options` must have passed config::validate(). `background`:
  // the same ranks over a group of its own, which saves beside training use; may be null where async_mode is
  // "disabled".
  Checkpointer(config::Checkpoint options, RunFacts run, Ranks& ranks, CheckpointState& state,
               Ranks* background = nullptr);

  // True after the last step, every `interval` steps, and after step 1 when that was asked for.
  bool should_save(int step, int last_step) const;

  // True when interval_minutes have passed on this rank since the last save. Clocks differ: agree before save().
  bool is_time_due() const;

  // Whether this run writes checkpoints at all.
  bool saves() const { return options_.enable && !options_.load_only; }

  // Saves step `step` when should_save() says so or `time_due`; collective. Says whether it did. The last save holds
  // the model only when last_save_model_only is set. After any other save the oldest folders beyond keep_latest_k are
  // removed, but the one that the keep rule names. Throws, also at steps that do not save, what a save beside training
  // threw. The last save, and save_full(), throw also with on_save_error = "warn": nothing comes after them.
  bool save(int step, int last_step, bool time_due = false);

  // With an async_mode: before what items() refers to changes, and before the process ends.
  void wait_staged() { saver_.wait_staged(); }
  void finish();

  // Asked on rank 0 before old folders are removed, with an async_mode on another thread. Set it before the first save.
  void set_keep_rule(KeepRule rule) { keep_rule_ = std::move(rule); }

  // Saves now whatever the interval says, with the full state: for a signal that asks to stop. Collective.
  void save_full(int step);

  // Writes step-0 for create_seed_checkpoint: the model only (the full state when last_save_model_only is false).
  void save_seed();

  // From here on the state is not one of numbers: it is still saved, with a mark, and no such save takes the place of
  // the newest one before it, whatever keep_latest_k says. On every rank.
  void mark_not_finite() { is_of_numbers_ = false; }

  // Back to the newest save of this run whose weights are numbers (choose_good): everything but the position in the
  // data. Waits for a save under way first. The step it is of; nothing where there is none. Collective. Throws as
  // load() and finish() do.
  std::optional<int> roll_back();

  // Loads what choose_load() says; collective. Throws CheckpointError, on all ranks, also what choose_load() and
  // CheckpointState::check_fits() throw. From a damaged checkpoint it falls back, with an error in the log, to the
  // newest intact one before it, unless load_step named it.
  Loaded load();

 private:
  bool may_fall_back(const LoadChoice& choice) const;
  Loaded load_choice(const LoadChoice& choice);
  bool is_excluded(const Item& item) const;
  std::vector<Item> wanted_items(bool model_only) const;
  void warn_of_damage(const DamagedCheckpoint& error, int step) const;
  void check_fits(const LoadChoice& choice);
  void write(int step, bool model_only, bool is_last);
  SaveOptions save_options() const;
  // The last model-only save, in the dtype and format asked for.
  void check_config(const std::filesystem::path& folder) const;
  std::uint64_t export_whole_model(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                                   const SaveOptions& options) const;
  std::uint64_t export_model(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                             const SaveOptions& options) const;
  // What a save is, as decided when it began: with an async_mode it is written later.
  struct Save {
    int step;
    bool model_only;
    bool make_room;
    SaveOptions options;
  };
  void write_items(const Save& save, const std::vector<Item>& items, Ranks& ranks) const;
  void handle_failed_save(const CheckpointError& error) const;

  const config::Checkpoint options_;
  const RunFacts run_;
  const bool is_async_;
  Ranks& ranks_;
  CheckpointState& state_;
  Ranks* background_;
  KeepRule keep_rule_;
  TimePoint last_save_;
  bool is_last_save_ = false;  // of the newest write(): no later one makes up for it
  bool is_of_numbers_ = true;
  AsyncSaver saver_;  // last: its thread uses the members above
};

}  // namespace titan::checkpoint
