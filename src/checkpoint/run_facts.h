// What a checkpointer must know of its run besides the [checkpoint] table.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "base/clock.h"
#include "checkpoint/hugging_face/hugging_face.h"

namespace titan::checkpoint {

struct RunFacts {
  std::filesystem::path base;                                              // the folder of the step folders
  std::int64_t training_steps = std::numeric_limits<std::int64_t>::max();  // after which the run is finished
  std::string hf_assets_path;  // for checkpoint.initial_load_in_hf without an initial_load_path
  HuggingFaceFormat hf_format;
  std::string run_config;  // goes into every DCP folder under the name kRunConfigFile; "" = none
  // What checkpoint.interval_minutes are measured by.
  Clock now = std::chrono::steady_clock::now;
};

}  // namespace titan::checkpoint
