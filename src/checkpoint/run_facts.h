// Facts about a run that a Checkpointer needs besides the [checkpoint] table.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "base/clock.h"
#include "checkpoint/hugging_face/hugging_face.h"

namespace titan::checkpoint {

struct RunFacts {
  std::filesystem::path base;                                              // contains the step folders
  std::filesystem::path memory_folder;                                     // contains the copies in memory; empty: none
  std::int64_t training_steps = std::numeric_limits<std::int64_t>::max();  // the run is finished after these
  std::string hf_assets_path;  // for checkpoint.initial_load_in_hf without an initial_load_path
  HuggingFaceFormat hf_format;
  std::map<std::string, std::string> texts;  // further files of every DCP folder, name -> content
  // Throws if the run must not write to `base` any more. Called on rank 0 before each save, from the thread that writes
  // it; null if nothing can forbid it.
  std::function<void()> check_base;
  // Makes the rows of the run's steps durable. Called on rank 0 before each save on disk, from the thread that writes
  // it; null if there are none.
  std::function<void()> sync_rows;
  // Clock that measures checkpoint.interval_minutes.
  Clock now = std::chrono::steady_clock::now;
};

}  // namespace titan::checkpoint
