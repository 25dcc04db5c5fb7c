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

// The model of scripts/gpu_check.sh: 1.1 billion parameters at 16 layers, 4 sequences of 2048 tokens.
inline config::JobConfig config_of_1b(std::int64_t layers) {
  config::JobConfig config;
  config.model.args.dim = 2048;
  config.model.args.n_layers = layers;
  config.model.args.n_heads = 32;
  config.model.args.n_kv_heads = 8;
  config.model.args.ffn_dim_multiplier = 1.5;
  config.model.args.vocab_size = 32000;
  config.training.seq_len = 2048;
  config.training.local_batch_size = 4;
  config.activation_checkpoint.mode = "none";
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
