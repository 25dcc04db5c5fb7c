#include "config/keys/datasets.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace titan::config {
namespace {

constexpr const char* kTorchTitansC4Test = "./tests/assets/c4_test";

void check_kind(const std::string& key, const std::string& kind, std::vector<Fault>& errors) {
  const auto kinds = dataset_kinds();
  if (std::ranges::count(kinds, lower_case(kind)) > 0) return;
  const auto near = nearest_name(lower_case(kind), kinds);
  errors.push_back({key + ": unknown dataset \"" + kind + "\"." + (near ? " Did you mean \"" + *near + "\"?" : "") +
                        " Known: " + join(kinds, ", ") +
                        ". Nothing is streamed from a network: download a dataset as JSON lines first.",
                    {key}});
}

// A text key would be silently ignored for kinds that have no fields.
void check_text_key(const std::string& table, const std::string& text_key, const std::vector<std::string>& kinds,
                    std::vector<Fault>& errors) {
  const auto has_fields = [](const std::string& kind) {
    const std::string name = lower_case(kind);
    return name != "text" && name != "indexed" && name != "chat";
  };
  if (text_key == "text" || std::ranges::any_of(kinds, has_fields)) return;
  const std::string key = table + ".dataset_text_key";
  errors.push_back({key + " = \"" + text_key + "\" names a field of JSON lines, and " + table +
                        " reads no JSON lines (" + join(kinds, ", ") +
                        "); leave it out, or set the dataset to \"jsonl\"",
                    {key}});
}

// A key that decides how conversations are trained would be silently ignored where there are none.
void check_chat_keys(const JobConfig& config, const std::vector<std::string>& kinds, std::vector<Fault>& errors) {
  if (std::ranges::any_of(kinds, [](const std::string& kind) { return lower_case(kind) == "chat"; })) return;
  const Chat defaults;
  const auto check = [&](const std::string& key, const std::string& value, const std::string& unset) {
    if (value != unset)
      errors.push_back({key + " = \"" + value + "\" is about conversations, and no dataset is of kind chat (" +
                            join(kinds, ", ") + "); leave it out, or set training.dataset = \"chat\"",
                        {key}});
  };
  check("chat.too_long", config.chat.too_long, defaults.too_long);
  check("chat.loss_weight", config.chat.loss_weight, defaults.loss_weight);
}

}  // namespace

std::vector<std::string> dataset_kinds() {
  return {"text", "jsonl", "chat", "c4_test", "c4", "c4_validation", "indexed"};
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string data_order(const std::string& asked, const std::string& dataset, bool is_mix) {
  if (asked != "auto") return asked;
  return !is_mix && lower_case(dataset).starts_with("c4") ? "torchtitan" : "elastic";
}

MixEntry parse_mix_entry(const std::string& text) {
  const std::string key = "training.dataset_mix";
  const std::string expected =
      key + ": expected \"WEIGHT KIND PATH\", for example \"0.7 jsonl /data/web\"; found \"" + text + "\"";
  const auto first = text.find(' ');
  const auto second = first == std::string::npos ? first : text.find(' ', first + 1);
  if (second == std::string::npos || second == first + 1 || second + 1 == text.size())
    throw ConfigError(expected, {key});
  MixEntry entry{.kind = text.substr(first + 1, second - first - 1), .path = text.substr(second + 1)};
  const auto [end, error] = std::from_chars(text.data(), text.data() + first, entry.weight);
  if (error != std::errc() || end != text.data() + first || !(entry.weight >= 1e-30 && entry.weight <= 1e30)) {
    throw ConfigError(expected + ": the weight must be a positive number, 1e-30 to 1e30", {key});
  }
  return entry;
}

std::optional<std::string> dataset_path(const std::string& kind, const std::optional<std::string>& path) {
  if (!path && lower_case(kind) == "c4_test") return kTorchTitansC4Test;
  return path;
}

std::vector<NamedDataset> named_datasets(const JobConfig& config) {
  std::vector<NamedDataset> out;
  const auto add = [&](const std::string& table, const std::string& kind, const std::optional<std::string>& given) {
    if (const auto path = dataset_path(kind, given)) out.push_back({table + ".dataset_path", kind, *path});
  };
  if (config.training.dataset_mix.empty()) add("training", config.training.dataset, config.training.dataset_path);
  for (const std::string& text : config.training.dataset_mix) {
    const MixEntry entry = parse_mix_entry(text);
    out.push_back({"training.dataset_mix", entry.kind, entry.path});
  }
  if (config.validation.enable) add("validation", config.validation.dataset, config.validation.dataset_path);
  return out;
}

bool uses_chat_template(const JobConfig& config) {
  const auto is_chat = [](const NamedDataset& dataset) { return lower_case(dataset.kind) == "chat"; };
  return config.chat.chat_template || std::ranges::any_of(named_datasets(config), is_chat);
}

std::vector<Fault> find_wrong_datasets(const JobConfig& config) {
  std::vector<Fault> errors;
  std::vector<std::string> kinds;
  if (config.training.dataset_mix.empty()) {
    check_kind("training.dataset", config.training.dataset, errors);
    kinds.push_back(config.training.dataset);
  }
  for (const std::string& text : config.training.dataset_mix) {
    try {
      kinds.push_back(parse_mix_entry(text).kind);
      check_kind("training.dataset_mix", kinds.back(), errors);
    } catch (const ConfigError& error) {
      errors.push_back({error.what(), error.keys()});
    }
  }
  check_text_key("training", config.training.dataset_text_key, kinds, errors);
  std::vector<std::string> all_kinds = kinds;
  if (config.validation.enable) all_kinds.push_back(config.validation.dataset);
  check_chat_keys(config, all_kinds, errors);
  if (!config.validation.enable) return errors;
  check_kind("validation.dataset", config.validation.dataset, errors);
  check_text_key("validation", config.validation.dataset_text_key, {config.validation.dataset}, errors);
  return errors;
}

Fault missing_dataset(const std::string& table, const std::string& kind) {
  const std::string key = table + ".dataset_path";
  Fault fault{key + " is not set", {key}};
  if (table == "validation") fault = {"validation.enable needs " + key, {"validation.enable", key}};
  if (lower_case(kind).starts_with("c4")) {
    fault.message += ": TorchTitan streams \"" + kind +
                     "\" from the network, and nothing is streamed here. Download files of the dataset allenai/c4 from "
                     "Hugging Face (en/c4-train.*.json.gz are read as they are) and set " +
                     key + " to their folder";
  } else {
    fault.message += std::string(": no data to ") + (table == "validation" ? "validate" : "train") +
                     " on; set it to a file or folder";
  }
  return fault;
}

}  // namespace titan::config
