#pragma once

#include <gtest/gtest.h>

#include <string>

#include "models/registry.h"
#include "train/dry_run/dry_run.h"

namespace titan::train {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Llama 3's 8B in bfloat16 with sequences of 8192 tokens, as TorchTitan's llama3_8b.toml has it.
inline config::JobConfig config_of_8b() {
  config::JobConfig config;
  config.model.name = "llama3";
  config.model.flavor = "8B";
  config.training.seq_len = 8192;
  config.training.local_batch_size = 1;
  config.activation_checkpoint.mode = "selective";
  config.activation_checkpoint.selective_ac_option = "op";
  return config;
}

inline TrainSpec spec_of(const config::JobConfig& config) {
  return models::make_train_spec(config.model, config.training.seq_len);
}

inline MemoryEstimate estimate(const config::JobConfig& config, int world_size,
                               EstimatedDevice device = EstimatedDevice::kGpu) {
  return estimate_memory(config, spec_of(config), world_size, device);
}

}  // namespace titan::train
