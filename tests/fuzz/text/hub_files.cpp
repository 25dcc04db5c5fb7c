#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "checkpoint/hugging_face/generation_config.h"
#include "checkpoint/hugging_face/hugging_face_files.h"
#include "checkpoint/io/checksums.h"
#include "config/keys/field_values.h"
#include "config/keys/fields.h"
#include "models/from_folder.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

// Every value must be one that a configuration may have.
void check_model(const config::JobConfig& config) {
  for (const config::Field& field : config::fields())
    if (const auto fault = config::find_fault(field, field.get(config)); fault && field.key.starts_with("model.args."))
      throw Finding("accepted: " + *fault);
}

}  // namespace

bool run_hub_index(std::string_view input) {
  static const MemoryFolder folder;
  write_over(folder.path() / checkpoint::kHuggingFaceIndex, input);
  write_over(folder.path() / "model-00001-of-00002.safetensors", "");
  write_over(folder.path() / "model-00002-of-00002.safetensors", "");
  return accepts([&] {
    const checkpoint::WeightFiles files(folder.path());
    for (const auto& [tensor, file] : files.index())
      require(files.has(tensor, folder.path() / file), "a tensor that is not in its file");
    for (const fs::path& file : files.files()) require(fs::is_regular_file(file), "a file that is none");
  });
}

bool run_hub_config(std::string_view input) {
  static const MemoryFolder folder;
  write_over(folder.path() / "config.json", input);
  write_over(folder.path() / checkpoint::kGenerationConfig, input);
  accepts([&] { checkpoint::read_stop_tokens(folder.path()); });
  accepts([&] { checkpoint::kept_defaults(folder.path(), "nothing"); });
  accepts([&] { checkpoint::parse_hugging_face_config(std::string(input), "config.json"); });
  accepts(
      [&] { checkpoint::describe_model(std::string(input), at::kFloat, {.generation_defaults = std::string(input)}); });
  bool accepted = false;
  accepts([&] {
    config::JobConfig config;
    config.model.from = folder.path().string();
    std::vector<config::Fault> faults;
    std::vector<std::string> warnings;
    const config::Origins given = {{"model.hf_assets_path", {}}};  // the folder has no tokenizer
    models::complete_from_folder(config, given, faults, warnings);
    for (const config::Fault& fault : faults) check_message(fault.message);
    accepted = faults.empty();
    if (accepted) check_model(config);
  });
  return accepted;
}

bool run_checksums(std::string_view input) {
  static const MemoryFolder folder;
  write_over(folder.path() / checkpoint::kChecksumsFile, input);
  write_over(folder.path() / "config.json", "{}");
  return accepts([&] {
    const auto read = checkpoint::read_checksums(folder.path());
    accepts([&] { checkpoint::wrong_sizes(folder.path(), *read); });
    accepts([&] { checkpoint::changed_texts(folder.path()); });
    checkpoint::write_checksums(folder.path(), *read);
    require(checkpoint::read_checksums(folder.path()) == read, "other checksums after writing and reading them");
  });
}

Seeds hub_index_seeds() {
  return {{"index", R"({"metadata": {"total_size": 16}, "weight_map": {
  "model.embed_tokens.weight": "model-00001-of-00002.safetensors", "lm_head.weight": "model-00002-of-00002.safetensors"}}
)"}};
}

Seeds hub_config_seeds() {
  return {
      {"llama", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 64,
 "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64},
 "tie_word_embeddings": false, "attention_bias": false, "eos_token_id": [1, 2], "bos_token_id": 0, "torch_dtype": "bfloat16"})"},
      {"qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 256, "hidden_size": 64,
 "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
 "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "use_sliding_window": false,
 "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}, "tie_word_embeddings": true, "eos_token_id": 3})"}};
}

Seeds checksums_seeds() {
  const MemoryFolder folder;
  checkpoint::write_checksums(
      folder.path(),
      {"0123abcd", {{"config.json", checkpoint::checksum_of("{}")}, {"__0_0.distcp", checkpoint::checksum_of("abc")}}});
  return {{"written", read_file(folder.path() / checkpoint::kChecksumsFile)}};
}

}  // namespace titan::fuzz
