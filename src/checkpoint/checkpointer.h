// When to save, what to load, which folders to keep. The state itself comes from the trainer through CheckpointState.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_io.h"
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
  bool create_seed_checkpoint = false;  // save step 0 and leave; the same at any number of ranks
  bool load_only = false;               // never save
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
  // `ranks` and `state` must outlive this. Throws ConfigError for options that contradict each other.
  Checkpointer(CheckpointOptions options, Ranks& ranks, CheckpointState& state);

  // True after the last step, every `interval` steps, and after step 1 when that was asked for.
  bool should_save(int step, int last_step) const;

  // Saves step `step` when should_save() says so; collective. Says whether it did. The last save holds the model only
  // when last_save_model_only is set. After any other save the oldest folders beyond keep_latest_k are removed.
  bool save(int step, int last_step);

  // Saves now whatever the interval says, with the full state: for a signal that asks to stop. Collective.
  void save_full(int step);

  // Writes step-0 for create_seed_checkpoint: the model only (the full state when last_save_model_only is false).
  void save_seed();

  // Loads what the options and the folder say; collective. Gives the step after which training continues: 0 when only
  // the model was loaded, nothing when there is nothing to load. Never passes over an existing run in silence: folders
  // without a complete checkpoint, a load_step that does not exist and a finished model-only run throw CheckpointError.
  std::optional<int> load();

 private:
  struct Choice;

  Choice choose() const;
  Choice choose_from_folder(const std::vector<int>& steps) const;
  std::optional<int> load_choice(const Choice& choice);
  std::vector<Item> wanted_items(bool model_only) const;
  void check_data_ranks(const std::filesystem::path& folder, const std::vector<Item>& items);
  void write(int step, bool model_only);
  void remove_stale_folders() const;
  void remove_old_steps() const;
  std::filesystem::path step_folder(int step) const;

  CheckpointOptions options_;
  Ranks& ranks_;
  CheckpointState& state_;
  std::filesystem::path base_;
};

}  // namespace titan::checkpoint
