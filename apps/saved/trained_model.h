// Loads a trained model from a checkpoint, with its tokenizer and limits, into one process or split over ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/train_contract.h"
#include "data/tokenizer/tokenizer.h"
#include "distributed/parallel_dims.h"
#include "distributed/world.h"

namespace titan {

struct TrainedModelOptions {
  std::string command;                           // "titan-train generate", before errors
  std::string checkpoint;                        // a run, its checkpoints, a step, or Hugging Face weights
  std::string checkpoint_flag = "--checkpoint";  // which names it; "" if it is an argument without a flag
  std::string config;                            // --config: for a checkpoint without a configuration; "" if not given
  std::string tokenizer;                         // --tokenizer: instead of the configuration's; "" for that one
  std::string device = "auto";                   // --device: auto, cpu or cuda
  std::string dtype = "auto";                    // --dtype: auto, float32 or bfloat16
  std::optional<std::int64_t> context;           // --context: instead of the sequence length of training
  bool continues_texts = true;                   // false: there will be no stop tokens
  // --tensor-parallel: ranks that share each product, of those that hold a copy together
  std::int64_t tensor_parallel = 1;
};

struct TrainedModel {
  std::string folder;                    // folder of the loaded checkpoint
  std::shared_ptr<dist::Meshes> meshes;  // of a model that is split over ranks, which uses them; else null
  std::unique_ptr<LanguageModel> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::string tokenizer_path;                // its folder, or a file
  std::optional<std::string> chat_template;  // the file with the run's, instead of that folder's
  at::Device device = at::kCPU;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::int64_t context = 0;                                  // tokens of the longest sequence
  std::int64_t num_parameters = 0, num_parameters_here = 0;  // of the model, and of this rank's part
  std::int64_t vocab_size = 0;                               // logits of one token
  // Tokens that end a text: the tokenizer's EOS, those that a Hugging Face folder names, and those that an export of a
  // run names.
  std::vector<std::int64_t> stop_ids;
};

// Returns the device that the options name, and makes it the current one of this thread. Throws ConfigError.
at::Device pick_device(const TrainedModelOptions& options);

// Reads the weights straight into the model, so that memory holds one copy. With --dtype auto they are bfloat16 if
// they were saved as bfloat16 or the device is a GPU, else float32. Throws ConfigError and DataError, naming the flag,
// for mistakes that the user can fix, and CheckpointError for weights that are damaged or of another model.
TrainedModel load_trained_model(const TrainedModelOptions& options);
// Same on `device`, which must be the current one of its type: for each of several ranks that work by themselves.
TrainedModel load_whole_model(const TrainedModelOptions& options, at::Device device);

// Returns the device type of the option --device. Throws ConfigError if it asks for a GPU that is not there.
c10::DeviceType device_type_of(const TrainedModelOptions& options);

// Splits the model over all ranks of `world`, whose device it uses, and reads only this rank's part: groups of
// `tensor_parallel` ranks split each product, and fully_shard splits the parameters over the groups, so that each rank
// gathers one block at a time. In a world of one rank it is load_trained_model(options). Any number of tokens can be
// given to the model. The world must outlive it. Collective, and so is every call of the model.
TrainedModel load_trained_model(const TrainedModelOptions& options, dist::World& world);

}  // namespace titan
