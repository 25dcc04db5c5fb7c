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
#include "contract/loss.h"
#include "contract/model.h"
#include "distributed/parallel_dims.h"
#include "facts/model_naming.h"
#include "facts/model_stats.h"

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
  ModelNaming naming;  // in Hugging Face's format
};

}  // namespace titan
