#include "models/from_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "base/fs.h"
#include "config/keys/field_values.h"
#include "config/keys/fields.h"
#include "models/common/hub/rope_config.h"

namespace titan::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFrom = "model.from";
// Keys that a folder decides. A saved configuration has them all, and must not depend on what the folder is now.
constexpr std::array kDecided = {"model.name",
                                 "model.args.dim",
                                 "model.args.n_layers",
                                 "model.args.n_heads",
                                 "model.args.n_kv_heads",
                                 "model.args.head_dim",
                                 "model.args.hidden_dim",
                                 "model.args.vocab_size",
                                 "model.args.norm_eps",
                                 "model.args.rope_theta",
                                 "model.args.rope_scaling_args.scaling_factor",
                                 "model.args.enable_weight_tying",
                                 "model.hf_assets_path",
                                 "checkpoint.enable",
                                 "checkpoint.initial_load_in_hf"};

bool has_file_ending(const fs::path& folder, std::string_view ending) {
  std::error_code error;
  const auto ends = [&](const fs::directory_entry& entry) { return entry.path().string().ends_with(ending); };
  return std::ranges::any_of(fs::directory_iterator(folder, error), ends);
}

bool has_tokenizer(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "tokenizer.json", error) || fs::exists(folder / "tokenizer.model", error);
}

// A model's name on a hub, such as "meta-llama/Llama-3.2-1B", is not a folder.
std::string hint_for_hub_name(const std::string& from) {
  const bool is_name = std::ranges::count(from, '/') == 1 && !from.starts_with(".") && !from.starts_with("/");
  return is_name ? "; a name on a hub is downloaded first, as with: hf download " + from + " --local-dir FOLDER" : "";
}

config::RopeScalingArgs scaling_args(const std::optional<RopeScaling>& scaling) {
  config::RopeScalingArgs args;
  args.scaling_factor = scaling ? scaling->scaling_factor : 1;
  if (!scaling) return args;
  args.type = name_of(scaling->type);
  if (scaling->type != RopeScalingType::kLinear)
    args.original_max_position_embeddings = scaling->original_max_position_embeddings;
  if (scaling->type == RopeScalingType::kLlama3) {
    args.low_freq_factor = scaling->low_freq_factor;
    args.high_freq_factor = scaling->high_freq_factor;
  }
  if (scaling->type == RopeScalingType::kYarn) {
    args.beta_fast = scaling->beta_fast;
    args.beta_slow = scaling->beta_slow;
    args.attention_factor = scaling->attention_factor;
  }
  return args;
}

class Folder {
 public:
  Folder(config::JobConfig& config, const config::Origins& given, std::vector<config::Fault>& errors,
         std::vector<std::string>& warnings)
      : config_(config), given_(given), errors_(errors), warnings_(warnings), folder_(*config.model.from) {}

  std::vector<std::string> complete() {
    if (std::ranges::all_of(kDecided, [&](const char* key) { return is_given(key); })) return set_;
    const fs::path file = folder_ / "config.json";
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) {
      fault("model.from = \"" + folder_.string() +
            "\" is not the folder of a model in Hugging Face's format: there is no " + file.string() +
            hint_for_hub_name(folder_.string()));
      return set_;
    }
    try {
      const std::string json = read_file(file);
      const CatalogEntry& entry = entry_of_config(json, file.string());
      const HubDecoder decoder = entry.read_config(json, file.string());
      take_name(entry);
      if (errors_.empty()) take_args(args_of(decoder, entry));
    } catch (const Error& error) {
      std::string reason = error.what();
      if (reason.starts_with("error: ")) reason.erase(0, std::string_view("error: ").size());
      fault("model.from: " + reason);
      return set_;
    }
    take_tokenizer();
    take_weights();
    return set_;
  }

 private:
  void fault(const std::string& message, std::vector<std::string> keys = {}) {
    keys.emplace_back(kFrom);
    errors_.push_back({message, std::move(keys)});
  }

  bool is_given(const char* key) const { return given_.contains(key); }

  template <typename Value, typename From>
  void set(const char* key, Value& value, const From& from) {
    value = from;
    set_.emplace_back(key);
  }

  void take_name(const CatalogEntry& entry) {
    config::Model& model = config_.model;
    if (given_.contains("model.flavor") && model.flavor != config::Model().flavor)
      fault("model.flavor has no effect: model.from decides the sizes; remove one of them", {"model.flavor"});
    if (!is_given("model.name")) return set("model.name", model.name, entry.name);
    if (entry_of(model).read_config != entry.read_config)
      fault("model.name is \"" + model.name + "\", and the model in model.from is a " + entry.name + "; remove it",
            {"model.name"});
  }

  void take_args(const config::ModelArgs& args) {
    constexpr std::string_view kTable = "model.args.", kScaling = "model.args.rope_scaling_args.";
    config::JobConfig theirs;
    theirs.model.args = args;
    const bool has_own_scaling = config_.model.args.rope_scaling_args != config::RopeScalingArgs{};
    for (const config::Field& field : config::fields()) {
      if (!field.key.starts_with(kTable) || (has_own_scaling && field.key.starts_with(kScaling))) continue;
      const config::FieldValue value = field.get(theirs);
      if (std::holds_alternative<config::None>(value) || is_given(field.key.c_str())) continue;
      if (const auto wrong = config::find_fault(field, value)) {
        fault("model.from: " + (folder_ / "config.json").string() +
              " describes no model that can be built here: " + *wrong);
        continue;
      }
      field.set(config_, value);
      set_.push_back(field.key);
    }
  }

  void take_tokenizer() {
    if (is_given("model.hf_assets_path") || is_given("model.tokenizer_path")) return;
    if (has_tokenizer(folder_)) return set("model.hf_assets_path", config_.model.hf_assets_path, folder_.string());
    fault("model.from = \"" + folder_.string() +
          "\" has no tokenizer.json and no tokenizer.model: set model.hf_assets_path to the folder with the model's "
          "tokenizer");
  }

  void take_weights() {
    config::Checkpoint& checkpoint = config_.checkpoint;
    if (is_given("checkpoint.initial_load_path")) return;
    if (is_given("checkpoint.initial_load_in_hf") && !checkpoint.initial_load_in_hf) return;
    if (!has_file_ending(folder_, ".safetensors")) return warn_of_no_weights();
    if (is_given("checkpoint.enable") && !checkpoint.enable)
      return fault(
          "checkpoint.enable is false, and the weights of model.from are loaded if it is true: set it to true, "
          "or checkpoint.initial_load_in_hf to false, to start from random weights",
          {"checkpoint.enable"});
    if (!is_given("checkpoint.enable")) set("checkpoint.enable", checkpoint.enable, true);
    set("checkpoint.initial_load_path", checkpoint.initial_load_path, folder_.string());
    set("checkpoint.initial_load_in_hf", checkpoint.initial_load_in_hf, true);
  }

  void warn_of_no_weights() {
    const std::string folder = folder_.string();
    if (has_file_ending(folder_, ".bin") || has_file_ending(folder_, ".pth"))
      return fault("model.from = \"" + folder +
                   "\" has its weights in a pickle, which is not read: convert them once, "
                   "python3 -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"" +
                   folder + "\", dtype=\"auto\").save_pretrained(\"" + folder +
                   "\")', or set checkpoint.initial_load_in_hf to false, to start from random weights");
    warnings_.push_back("model.from = \"" + folder + "\" has no *.safetensors: training starts from random weights");
  }

  config::JobConfig& config_;
  const config::Origins& given_;
  std::vector<config::Fault>& errors_;
  std::vector<std::string>& warnings_;
  fs::path folder_;
  std::vector<std::string> set_;
};

}  // namespace

config::ModelArgs args_of(const HubDecoder& decoder, const CatalogEntry& entry) {
  const auto& [shape, max_seq_len] = decoder;
  const AttentionShape& attention = shape.block.attention;
  config::Model model;
  model.name = entry.name;
  model.from = "";
  config::ModelArgs& args = model.args;
  args.dim = attention.dim;
  args.n_layers = shape.n_layers;
  args.n_heads = attention.n_heads;
  args.n_kv_heads = attention.n_kv_heads;
  args.head_dim = attention.head_dim;
  args.hidden_dim = shape.block.hidden_dim;
  args.vocab_size = shape.vocab_size;
  args.norm_eps = shape.block.norm_eps;
  args.rope_theta = shape.rope_theta;
  args.max_seq_len = max_seq_len;
  args.enable_weight_tying = shape.tied;
  args.rope_scaling_args = scaling_args(shape.rope_scaling);
  // A key of one family is left out where it has the value that the family has anyway.
  if (entry.decoder(model).shape.no_rope_interval != shape.no_rope_interval)
    args.no_rope_layer_interval = shape.no_rope_interval;
  if (entry.decoder(model) != decoder) throw InternalError("[model.args] cannot describe a model of this config.json");
  return args;
}

std::vector<std::string> complete_from_folder(config::JobConfig& config, const config::Origins& given,
                                              std::vector<config::Fault>& errors, std::vector<std::string>& warnings) {
  if (!config.model.from) return {};
  return Folder(config, given, errors, warnings).complete();
}

}  // namespace titan::models
