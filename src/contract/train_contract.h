// What an application hands to the trainer about a model: how to build it, and how to shard it. models/registry.h makes
// one from the [model] section.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "facts/model_naming.h"
#include "contract/loss.h"
#include "contract/model.h"
#include "facts/model_stats.h"
#include "distributed/parallel_dims.h"

namespace titan {

// All that decides how a model is spread over ranks. A way to split it that is new needs no other argument.
struct ParallelContext {
  const dist::Meshes& meshes;
  const config::Training& training;
  const config::Parallelism& parallelism;
  const config::ActivationCheckpoint& activation_checkpoint;
};

struct TrainSpec {
  std::string name;              // "llama3 debugmodel"
  std::int64_t max_seq_len = 0;  // the longest sequence that the model is made for
  ModelStats stats;
  // The model keeps the documents of a row apart, and must know the token that ends them.
  bool separates_documents = false;
  // On the meta device: no memory. Without a document_end that it needs the model can be built, but not called.
  std::function<std::unique_ptr<LanguageModel>(std::optional<std::int64_t> document_end)> build_model;
  // Activation checkpointing, then fully_shard bottom-up. The model is still on meta. The context is needed during the
  // call only. Collective over the meshes.
  std::function<void(LanguageModel&, const ParallelContext&)> parallelize;
  LossFunction loss = cross_entropy_of_model;
  // Of a parameter by its name here, and the model's config.json there.
  std::function<HuggingFaceName(const std::string& fqn)> hugging_face_name;
  std::string hugging_face_config;
  // Returns where `config_json`, of the file `what`, describes another model than this one: values that change numbers.
  // Throws ConfigError for a model that cannot be built here.
  std::function<std::vector<HuggingFaceDifference>(const std::string& config_json, const std::string& what)>
      hugging_face_differences;
  // Names of the embedding and of the output projection, which other programs' models may store as one.
  std::string embedding, output;
};

}  // namespace titan
