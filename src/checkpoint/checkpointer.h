// Decides when to save, what to load and which folders to keep. The trainer provides the state (CheckpointState).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/async_saver.h"
#include "checkpoint/choose.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/known_steps.h"
#include "checkpoint/run_facts.h"
#include "config/job_config.h"

namespace titan::checkpoint {

// Interface through which the trainer provides and receives the state.
class CheckpointState {
 public:
  virtual ~CheckpointState() = default;
  // Returns this rank's items: with their content for a save, as the places to fill for a load. `model_only`:
  // parameters.
  virtual std::vector<Item> items(bool model_only) = 0;
  // Returns the optional values of a full checkpoint that check_fits() needs.
  virtual std::vector<Item> probes() = 0;
  // Throws CheckpointError if this run must not resume from the saved state. Called on rank 0, before a full state
  // overwrites anything. `saved` lacks values that the checkpoint lacks or that exclude_from_loading names.
  virtual void check_fits(const Values& saved) = 0;
  // Called after the tensors were filled, with the loaded values; those that exclude_from_loading names are absent.
  virtual void restored(const Values& values, bool model_only) = 0;
};

struct Loaded {
  std::optional<int> step;   // last finished step; 0 if only the model was loaded; nullopt if nothing was
  bool has_weights = false;  // every parameter was loaded; false if exclude_from_loading names the model
  bool is_finished = false;  // nothing was loaded: `step` is the run's last step, saved as model only
};

// Says what roll_back() restores, and from which save.
struct RollBackRule {
  bool with_data = false;  // also the position in the data
  // Asked on every rank once a save is loaded; must answer the same on all. If false, the save is moved aside, and the
  // one before it is loaded. Unset: any save will do.
  std::function<bool(int step)> accepts = {};
};

class Checkpointer {
 public:
  // `ranks`, `background` and `state` must outlive this. `options` must have passed config::validate(). `background`:
  // the same ranks over a separate process group, for saves in the background; may be null if async_mode is "disabled".
  Checkpointer(config::Checkpoint options, RunFacts run, Ranks& ranks, CheckpointState& state,
               Ranks* background = nullptr);

  // True after the last step, every `interval` steps, and after step 1 with enable_first_step_checkpoint.
  bool should_save(int step, int last_step) const;

  // True if interval_minutes have passed on this rank since the last save; ranks must agree before save().
  bool is_time_due() const;

  // True if this run writes checkpoints.
  bool saves() const { return options_.enable && !options_.load_only; }

  // Saves step `step` if should_save() or `time_due`; collective. Returns true if it saved. The last save holds only
  // the model if last_save_model_only is set. Every other save then removes the oldest folders beyond keep_latest_k,
  // except the one that the keep rule names. Throws the error of a background save, also at steps that do not save. The
  // last save and save_full() throw even with on_save_error = "warn", because no later save follows.
  bool save(int step, int last_step, bool time_due = false);

  // True if a copy of the state in memory is due after `step`: every memory_interval steps, unless a checkpoint is due,
  // or the weights are not finite any more. The same on every rank.
  bool should_copy(int step, int last_step) const;

  // Begins to copy the state of step `step` to memory, beside training: call wait_staged() as for a save. A copy that
  // fails is a warning, and the one before it stays. Collective. Throws the error of a background save before it.
  void copy_to_memory(int step);

  // True if this rank still writes a checkpoint in the background, for which a copy in memory would wait. Ranks must
  // agree.
  bool is_saving() const { return saver_.is_running() && !writes_copy_; }

  // Removes the copies in memory once a checkpoint holds the state: at the end of the run, after finish(). Acts on rank
  // 0; not collective.
  void remove_copies() const;

  // For asynchronous saves: call wait_staged() before the tensors of items() change, finish() before the process ends.
  void wait_staged() { saver_.wait_staged(); }
  void finish();

  // Gets the memory that saves beside training need, on a thread (AsyncSaver::reserve). Call once the optimizer has its
  // state.
  void reserve_memory();

  // Sets the rule that rank 0 asks before it removes old folders (on another thread with an async_mode). Call before
  // the first save.
  void set_keep_rule(KeepRule rule) { keep_rule_ = std::move(rule); }

  // Saves the full state now, regardless of the interval: for a signal that asks to stop. Collective. If `makes_room`,
  // then removes the oldest folders beyond keep_latest_k, as a save that is due does.
  void save_full(int step, bool makes_room = false);

  // Writes step-0 for create_seed_checkpoint: the model only (the full state when last_save_model_only is false).
  void save_seed();

  // Marks all later saves as not finite. Such a save never replaces the newest finite one, regardless of keep_latest_k.
  // Call on every rank.
  void mark_not_finite() { weights_finite_ = false; }

  // Loads the newest state of this run with finite weights (choose_good) that `rule` accepts. First waits for a save
  // under way. Returns the step of the state, or nullopt if there is none; the state is undefined then if one was
  // loaded. Collective. Throws as load() and finish() do.
  std::optional<int> roll_back(const RollBackRule& rule = {});

  // Returns the folder of the newest state that roll_back() would load; empty if there is none. Call it on rank 0,
  // after finish().
  std::string newest_good() const;

  // Loads what choose_load() chooses; collective. Throws CheckpointError on all ranks, including the errors of
  // choose_load() and CheckpointState::check_fits(). If the checkpoint is damaged, logs an error and falls back to the
  // newest intact one before it, unless load_step named it. Never falls back from a checkpoint that only cannot be read
  // (read_error.h).
  Loaded load();

 private:
  bool may_fall_back(const LoadChoice& choice) const;
  Loaded load_choice(const LoadChoice& choice);
  bool is_excluded(const Item& item) const;
  std::vector<Item> wanted_items(bool model_only) const;
  void warn_of_damage(const DamagedCheckpoint& error, const LoadChoice& choice);
  void move_aside(const LoadChoice& choice);
  void say_replaced(const std::filesystem::path& folder, int step) const;
  void check_fits(const LoadChoice& choice);
  void write(int step, bool model_only, bool is_last, bool makes_room);
  SaveOptions save_options() const;
  void check_config(const std::filesystem::path& folder) const;
  // Writes the last, model-only save in the configured dtype and format.
  std::uint64_t export_whole_model(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                                   const SaveOptions& options) const;
  std::uint64_t export_model(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks,
                             const SaveOptions& options) const;
  // Parameters of a save, fixed when it begins; with an async_mode it is written later.
  struct Save {
    int step;
    bool model_only;
    bool make_room;
    SaveOptions options;
  };
  void write_items(const Save& save, const std::vector<Item>& items, Ranks& ranks);
  void prepare_base(int step);
  void handle_failed_save(const CheckpointError& error) const;
  bool makes_copies() const { return saves() && options_.memory_interval > 0 && !run_.memory_folder.empty(); }
  void write_copy(const Save& save, const std::vector<Item>& items, Ranks& ranks);
  std::filesystem::path prepare_copies() const;
  void warn_of_failed_copy(const CheckpointError& error, int step);
  void forget_later_copies(const LoadChoice& loaded) const;
  // Steps whose states are damaged, on disk and in memory.
  struct Damaged {
    std::vector<int> saves, copies;
    void add(const LoadChoice& choice) { (choice.in_memory ? copies : saves).push_back(choice.step); }
  };

  const config::Checkpoint options_;
  const RunFacts run_;
  const bool is_async_;
  Ranks& ranks_;
  CheckpointState& state_;
  Ranks* background_;
  KeepRule keep_rule_;
  TimePoint last_save_;
  bool is_last_save_ = false;  // the newest write() is the last one, so no later save makes up for its failure
  bool weights_finite_ = true;
  bool writes_copy_ = false;                // the saver's newest work is a copy in memory
  bool copies_fail_ = false;                // on rank 0, for the saver's thread: the newest copy has failed
  bool made_a_copy_ = false;                // the same: one was made
  KnownSteps known_;                        // on rank 0; after load() for the thread of the save
  std::map<int, std::string> passed_over_;  // step -> what load() and roll_back() found instead of a good checkpoint
  AsyncSaver saver_;                        // declared last: its thread uses the members above
};

}  // namespace titan::checkpoint
