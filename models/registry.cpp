#include "models/registry.h"

#include <spdlog/spdlog.h>

#include <array>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "models/llama3/hugging_face.h"
#include "models/llama3/llama3.h"
#include "models/llama3/parallelize.h"

namespace titan::models {
namespace {

TrainSpec spec_of_llama(const std::string& name, const LlamaArgs& args, std::int64_t seq_len) {
  TrainSpec spec;
  spec.name = name;
  spec.max_seq_len = args.max_seq_len;
  spec.separates_documents = args.block_causal;
  spec.build_model = [args, seq_len](std::optional<std::int64_t> document_end) {
    return std::make_unique<Llama>(args, seq_len, document_end);
  };
  spec.parallelize = [](LanguageModel& m, const ParallelContext& context) {
    parallelize_llama(dynamic_cast<Llama&>(m), context.meshes.fsdp, context.training, context.parallelism,
                      context.activation_checkpoint);
  };
  spec.hugging_face_name = [args](const std::string& fqn) { return llama_hugging_face_name(fqn, args); };
  spec.hugging_face_config = llama_hugging_face_config(args);
  auto& stats = spec.stats;
  stats = {.vocab_size = args.vocab_size,
           .dim = args.dim,
           .hidden_dim = args.hidden_dim(),
           .num_layers = args.n_layers,
           .num_heads = args.n_heads,
           .num_kv_heads = args.kv_heads(),
           .head_dim = args.head_dim()};
  const auto attention = args.dim * args.head_dim() * 2 * (args.n_heads + args.kv_heads());
  const auto block = attention + 3 * args.dim * args.hidden_dim() + 2 * args.dim;
  stats.num_embedding_parameters = args.vocab_size * args.dim;
  stats.num_parameters = 2 * stats.num_embedding_parameters + args.n_layers * block + args.dim;
  return spec;
}

TrainSpec llama_spec(const config::Model& model, std::int64_t seq_len) {
  const LlamaArgs args = llama_args(model);
  if (seq_len > args.max_seq_len) {
    spdlog::warn("training.seq_len ({}) is longer than the {} tokens that {} {} is made for", seq_len, args.max_seq_len,
                 model.name, model.flavor);
  }
  return spec_of_llama(model.name + " " + model.flavor, args, seq_len);
}

struct Entry {
  const char* name;
  TrainSpec (*make)(const config::Model&, std::int64_t seq_len);
};

constexpr std::array kModels = {
    Entry{"llama3", llama_spec},
    Entry{"llama2", llama_spec},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : kModels) names.emplace_back(entry.name);
  return names;
}

TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len) {
  for (const auto& entry : kModels) {
    if (model.name == entry.name) return entry.make(model, seq_len);
  }
  const auto names = model_names();
  const auto nearest = nearest_name(model.name, names);
  throw ConfigError("model.name = \"" + model.name + "\" is unknown" +
                    (nearest ? "; did you mean \"" + *nearest + "\"?" : ".") + " Models: " + join(names, ", "));
}

TrainSpec make_train_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                          std::optional<std::int64_t> seq_len) {
  const LlamaArgs args = llama_args_from_hugging_face(config_json, what);
  return spec_of_llama(what, args, seq_len.value_or(args.max_seq_len));
}

HuggingFaceNames hugging_face_names(const std::string& architecture, std::int64_t num_heads,
                                    std::int64_t num_kv_heads) {
  if (architecture != kLlamaArchitecture)
    throw ConfigError("the architecture " + architecture + " is unknown; expected " + kLlamaArchitecture);
  LlamaArgs args;
  args.n_heads = num_heads;
  args.n_kv_heads = num_kv_heads;
  return {[args](const std::string& fqn) { return llama_hugging_face_name(fqn, args); }, llama_name_from_hugging_face,
          kLlamaEmbedding, kLlamaOutput};
}

}  // namespace titan::models
