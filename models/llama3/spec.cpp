#include "models/llama3/spec.h"

#include <spdlog/spdlog.h>

#include <memory>

#include "models/llama3/llama3.h"
#include "models/llama3/naming.h"
#include "models/llama3/parallelize.h"

namespace titan::models {
namespace {

// Computes the sizes by formula, so that an absurd configuration (billions of layers) is refused before it is built.
ModelStats stats_of(const LlamaArgs& args) {
  ModelStats stats{.vocab_size = args.vocab_size,
                   .dim = args.dim,
                   .hidden_dim = args.hidden_dim(),
                   .num_layers = args.n_layers,
                   .num_heads = args.n_heads,
                   .num_kv_heads = args.kv_heads(),
                   .head_dim = args.head_dim()};
  const auto attention = args.dim * args.head_dim() * 2 * (args.n_heads + args.kv_heads());
  const auto block = attention + 3 * args.dim * args.hidden_dim() + 2 * args.dim;
  stats.num_embedding_parameters = args.vocab_size * args.dim;
  if (args.tied) stats.num_tied_parameters = stats.num_embedding_parameters;
  stats.num_parameters =
      2 * stats.num_embedding_parameters - stats.num_tied_parameters + args.n_layers * block + args.dim;
  return stats;
}

TrainSpec spec_of(const std::string& name, const LlamaArgs& args, std::int64_t seq_len) {
  TrainSpec spec;
  spec.name = name;
  spec.max_seq_len = args.max_seq_len;
  spec.stats = stats_of(args);
  spec.separates_documents = args.block_causal;
  spec.build_model = [args, seq_len](std::optional<std::int64_t> document_end) {
    return std::make_unique<Llama>(args, seq_len, document_end);
  };
  spec.parallelize = [](LanguageModel& model, const ParallelContext& context) {
    parallelize_llama(dynamic_cast<Llama&>(model), context);
  };
  spec.naming = llama_naming(args);
  return spec;
}

}  // namespace

TrainSpec llama_spec(const config::Model& model, std::int64_t seq_len) {
  const LlamaArgs args = llama_args(model);
  if (seq_len > args.max_seq_len) {
    spdlog::warn("training.seq_len ({}) is longer than the {} tokens that {} {} is made for", seq_len, args.max_seq_len,
                 model.name, model.flavor);
  }
  return spec_of(model.name + " " + model.flavor, args, seq_len);
}

TrainSpec llama_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                     std::optional<std::int64_t> seq_len) {
  const LlamaArgs args = llama_args_from_hugging_face(config_json, what);
  return spec_of(what, args, seq_len.value_or(args.max_seq_len));
}

}  // namespace titan::models
