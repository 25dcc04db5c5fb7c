// When to save, what to load, which folders to keep. The state itself comes from the trainer through CheckpointState.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/async_saver.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/item.h"
#include "checkpoint/ranks.h"

namespace titan::checkpoint {

// TorchTitan's [checkpoint] table and job.dump_folder.
struct CheckpointOptions {
  bool enable = false;
  std::string dump_folder = "./outputs";
  std::string folder = "checkpoint";  // under dump_folder; an absolute path stands for itself
  int interval = 500;                 // steps between saves
  std::string initial_load_path;      // a checkpoint folder to start from when `folder` has none; "" = none
  bool initial_load_model_only = true;
  bool last_save_model_only = true;
  int keep_latest_k = 10;                         // 0 keeps all; 1 is refused
  int load_step = -1;                             // -1: the newest
  std::vector<std::string> exclude_from_loading;  // of model, optimizer, lr_scheduler, dataloader, train_state
  bool enable_first_step_checkpoint = false;
  bool create_seed_checkpoint = false;                    // save step 0 and leave; the same at any number of ranks
  bool load_only = false;                                 // never save
  c10::ScalarType export_dtype = c10::ScalarType::Float;  // of a last checkpoint that has the model only
  bool last_save_in_hf = false;                           // that checkpoint is a folder in Hugging Face's format
  bool initial_load_in_hf = false;                        // initial_load_path is one; "" means hf_assets_path
  std::string hf_assets_path;
  HuggingFaceFormat hf_format;
  bool async = false;               // save beside training
  bool stop_on_failed_save = true;  // else a save that fails is an error in the log, and training goes on
};

// The trainer's side.
class CheckpointState {
 public:
  virtual ~CheckpointState() = default;
  // This rank's items, for a save with their content, for a load as the places to fill. `model_only`: the parameters
  // alone.
  virtual std::vector<Item> items(bool model_only) = 0;
  // After the tensors were filled: the values that came with them. What exclude_from_loading names is absent.
  virtual void restored(const Values& values, bool model_only) = 0;
};

class Checkpointer {
 public:
  // `ranks`, `background` and `state` must outlive this. `background`: the same ranks over a group of its own, which
  // saves beside training use; may be null without options.async. Throws ConfigError for options that contradict each
  // other.
  Checkpointer(CheckpointOptions options, Ranks& ranks, CheckpointState& state, Ranks* background = nullptr);

  // True after the last step, every `interval` steps, and after step 1 when that was asked for.
  bool should_save(int step, int last_step) const;

  // Saves step `step` when should_save() says so; collective. Says whether it did. The last save holds the model only
  // when last_save_model_only is set. After any other save the oldest folders beyond keep_latest_k are removed, but the
  // one that the keep rule names. Throws, also at steps that do not save, what a save beside training threw.
  bool save(int step, int last_step);

  // With options.async: before what items() refers to changes, and before the process ends.
  void wait_staged() { saver_.wait_staged(); }
  void finish();

  // Asked on rank 0 before old folders are removed, with options.async on another thread: which of these steps (all
  // that have a complete checkpoint) stays whatever its age, or nothing. Set it before the first save.
  using KeepRule = std::function<std::optional<int>(const std::vector<int>& steps)>;
  void set_keep_rule(KeepRule rule) { keep_rule_ = std::move(rule); }

  // Saves now whatever the interval says, with the full state: for a signal that asks to stop. Collective.
  void save_full(int step);

  // Writes step-0 for create_seed_checkpoint: the model only (the full state when last_save_model_only is false).
  void save_seed();

  // Loads what the options and the folder say; collective. Gives the step after which training continues: 0 when only
  // the model was loaded, nothing when there is nothing to load. Never passes over an existing run in silence: folders
  // without a complete checkpoint, a load_step that does not exist and a finished model-only run throw CheckpointError.
  // From a damaged checkpoint it falls back, with an error in the log, to the newest intact one before it, unless
  // load_step named it.
  std::optional<int> load();

 private:
  struct Choice;

  Choice choose(const std::vector<int>& damaged) const;
  Choice choose_from_folder(const std::vector<int>& steps, std::vector<int> damaged) const;
  bool may_fall_back(const Choice& choice) const;
  std::optional<int> load_choice(const Choice& choice);
  std::vector<Item> wanted_items(bool model_only) const;
  void check_data_position(const std::filesystem::path& folder, const std::vector<Item>& items);
  void write(int step, bool model_only, bool make_room);
  // The last model-only save, in the dtype and format asked for.
  std::uint64_t export_model(const std::filesystem::path& folder, const std::vector<Item>& items, Ranks& ranks) const;
  Choice initial_choice() const;
  void write_items(int step, bool model_only, bool make_room, const std::vector<Item>& items, Ranks& ranks) const;
  void handle_failed_save(const CheckpointError& error) const;
  void remove_stale_folders() const;
  void remove_old_steps() const;
  std::filesystem::path step_folder(int step) const;

  CheckpointOptions options_;
  Ranks& ranks_;
  CheckpointState& state_;
  Ranks* background_;
  std::filesystem::path base_;
  KeepRule keep_rule_;
  AsyncSaver saver_;  // last: its thread uses the members above
};

}  // namespace titan::checkpoint
