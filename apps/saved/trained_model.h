// A trained model with what it takes to use it: from a checkpoint to weights, tokenizer and limits, in one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/train_contract.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {

struct TrainedModelOptions {
  std::string command;                  // "titan-train generate", before errors
  std::string checkpoint;               // --checkpoint: a run, its checkpoints, a step, or Hugging Face weights
  std::string config;                   // --config: of a checkpoint that has none; "": there is none
  std::string tokenizer;                // --tokenizer: in place of the configuration's; "": that one
  std::string device = "auto";          // --device: auto, cpu or cuda
  std::string dtype = "auto";           // --dtype: auto, float32 or bfloat16
  std::optional<std::int64_t> context;  // --context: in place of the length that the model was trained with
};

struct TrainedModel {
  std::string folder;  // of the checkpoint that was loaded
  std::unique_ptr<LanguageModel> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;
  at::Device device = at::kCPU;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t context = 0;  // tokens of the longest sequence
  // The tokens that end a text: the tokenizer's, and what a Hugging Face folder says.
  std::vector<std::int64_t> stop_ids;
};

// Weights are read straight into the model, so memory holds one copy of them. With --dtype auto they are bfloat16 where
// they were saved as such or the device is a GPU, else float32. Throws ConfigError and DataError for what the user can
// put right, naming the flag, and CheckpointError for weights that are damaged or of another model.
TrainedModel load_trained_model(const TrainedModelOptions& options);

}  // namespace titan
