// Everything that the trainer needs to know about a model: how to build it and how to shard it. models/registry.h makes
// a TrainSpec from the [model] section.
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

// Everything that decides how a model is parallelized. A new kind of parallelism needs no further argument.
struct ParallelContext {
  const dist::Meshes& meshes;
  const config::JobConfig& job;
  // The model will be called with any number of tokens, as generation does, so no rank holds a part of the sequence.
  bool any_length = false;

  // True if the ranks along cp have a part of each row.
  bool splits_rows() const { return meshes.cp.size() > 1 && !any_length; }
};

// One of the changes that make a model a parallel one. A spec lists its passes in the order in which they are applied:
// convert (other layers in place of some), tensor, context and pipeline parallelism, recompute, shard.
struct ModelPass {
  std::string name;  // "tensor"
  // The model is on the meta device. The context is needed only during the call. Collective over the meshes.
  std::function<void(LanguageModel&, const ParallelContext&)> apply;
};

// The name of the pass after which a rank may have a part of the model.
inline constexpr const char* kPipelinePass = "pipeline";

struct TrainSpec {
  std::string name;              // "llama3 debugmodel"
  std::int64_t max_seq_len = 0;  // the longest sequence that the model supports
  ModelStats stats;
  // The model separates the documents of a row, and needs the token that ends them.
  bool separates_documents = false;
  // Builds the model on the meta device, without memory. If it needs a document_end and has none, it can be built but
  // not called.
  std::function<std::unique_ptr<LanguageModel>(std::optional<std::int64_t> document_end)> build_model;
  std::vector<ModelPass> passes;
  LossFunction loss = cross_entropy_of_model;
  ModelNaming naming;  // names in Hugging Face's format
};

}  // namespace titan
