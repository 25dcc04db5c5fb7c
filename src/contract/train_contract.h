// What an application hands to the trainer about a model: how to build it, and how to shard it. models/registry.h makes
// one from the [model] section.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/hugging_face.h"
#include "contract/loss.h"
#include "contract/model.h"
#include "contract/model_stats.h"
#include "distributed/mesh.h"

namespace titan {

struct TrainSpec {
  std::string name;              // "llama3 debugmodel"
  std::int64_t max_seq_len = 0;  // the longest sequence that the model is made for
  ModelStats stats;
  // The model keeps the documents of a row apart, and must know the token that ends them: the application then sets
  // `document_end`.
  bool separates_documents = false;
  std::optional<std::int64_t> document_end;
  // Tells the run's tokenizer from others; set by the application, kept in checkpoints.
  std::string tokenizer_fingerprint;
  // On the meta device: no memory. Without a document_end that it needs the model can be built, but not called.
  std::function<std::unique_ptr<LanguageModel>(std::optional<std::int64_t> document_end)> build_model;
  // Activation checkpointing, then fully_shard bottom-up over `mesh`. The model is still on meta. Not collective.
  std::function<void(LanguageModel&, const dist::DeviceMesh& mesh, const config::Training&, const config::Parallelism&,
                     const config::ActivationCheckpoint&)>
      parallelize;
  LossFunction loss = cross_entropy_of_model;
  // Of a parameter by its name here, and the model's config.json there.
  std::function<HuggingFaceName(const std::string& fqn)> hugging_face_name;
  std::string hugging_face_config;
  // Set by the application; called on rank 0 each time that such weights are written. Null: the tokenizer is not known.
  std::function<HuggingFaceTokenizer()> hugging_face_tokenizer;
};

}  // namespace titan
