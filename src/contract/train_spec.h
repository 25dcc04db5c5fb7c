// What an application hands to the trainer about a model: how to build it, and how to shard it. models/registry.h makes
// one from the [model] section.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/job_config.h"
#include "distributed/mesh.h"
#include "nn/init.h"
#include "nn/kv_cache.h"
#include "nn/module.h"

namespace titan {

// A language model: tokens int64 [B, T] -> logits [B, T, V]; with labels int64 [B, T] as a second input, the sum of
// their cross entropies, float32 0-d (nn/cross_entropy.h), for which the logits need not be whole.
class LanguageModel : public nn::Module {
 public:
  // Fills every parameter (materialized, sharded or not) and recomputes the buffers on the parameters' device.
  virtual void init_weights(nn::Initializer& initializer) = 0;

  // From here on a call continues the tokens of the calls before it, whose keys and values `cache` holds: the first
  // call takes any number of tokens, each later one takes one token per row. The logits are those of the last token,
  // [B, 1, V]; there is no loss and no gradient. Null ends it, and the cache must live until then. Throws InternalError
  // where the model cannot.
  virtual void use_cache(nn::KvCache* /*cache*/) { throw InternalError("this model cannot continue from a cache"); }
};

struct ModelStats {
  std::int64_t num_parameters = 0;
  std::int64_t num_embedding_parameters = 0;
  std::int64_t vocab_size = 0;
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

// A parameter in Hugging Face's format: its name there, and the attention heads within which its rows are in the order
// that their rotary embedding wants (0: the same rows).
struct HuggingFaceName {
  std::string name;
  std::int64_t rotary_heads = 0;
};

// What stands of the tokenizer beside weights in Hugging Face's format.
struct HuggingFaceTokenizer {
  std::map<std::string, std::string> files;  // name -> content
  std::optional<std::int64_t> bos_id;        // nothing where it has none, or is not known
  std::optional<std::int64_t> eos_id;
};

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
  // Of a parameter by its name here, and the model's config.json there.
  std::function<HuggingFaceName(const std::string& fqn)> hugging_face_name;
  std::string hugging_face_config;
  // Set by the application; called on rank 0 each time that such weights are written. Null: the tokenizer is not known.
  std::function<HuggingFaceTokenizer()> hugging_face_tokenizer;
};

}  // namespace titan
