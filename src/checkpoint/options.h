// TorchTitan's [checkpoint] table and job.dump_folder, as the checkpointer takes them.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"
#include "checkpoint/hugging_face/hugging_face.h"

namespace titan::checkpoint {

struct CheckpointOptions {
  bool enable = false;
  std::string dump_folder = "./outputs";
  std::string folder = "checkpoint";                     // under dump_folder; an absolute path stands for itself
  int training_steps = std::numeric_limits<int>::max();  // after which a run is finished
  int interval = 500;                                    // steps between saves
  double interval_minutes = 0;    // also when so much time has passed since the last one; 0: never
  std::string initial_load_path;  // a checkpoint folder to start from when `folder` has none; "" = none
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
  int files_per_rank = 1;           // written by a rank at the same time
  std::string run_config;           // goes into every DCP folder under the name kRunConfigFile; "" = none
  bool async = false;               // save beside training
  bool stop_on_failed_save = true;  // else a save that fails is an error in the log, and training goes on
  // What interval_minutes are measured by.
  Clock now = std::chrono::steady_clock::now;

  std::filesystem::path base() const { return std::filesystem::path(dump_folder) / folder; }
};

// What exclude_from_loading may name.
const std::vector<std::string>& state_groups();

// Throws ConfigError for options that are out of range or contradict each other.
void check_options(const CheckpointOptions& options);

}  // namespace titan::checkpoint
