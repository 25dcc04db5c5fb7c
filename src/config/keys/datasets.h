// Datasets that a configuration names, by kind and path. Opens none: data/dataset_kinds.h does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Returns the valid values of training.dataset: text, jsonl, chat, indexed, and TorchTitan's names
// c4_test, c4 and c4_validation.
std::vector<std::string> dataset_kinds();

// Lower-cases a kind; kinds are matched case-insensitively.
std::string lower_case(std::string text);

// Returns training.data_order with "auto" decided: TorchTitan's order for its own datasets, else the elastic one.
std::string data_order(const std::string& asked, const std::string& dataset, bool is_mix);

// One entry of training.dataset_mix: "WEIGHT KIND PATH", for example "0.7 jsonl /data/web pages".
struct MixEntry {
  double weight = 1;
  std::string kind;
  std::string path;
};

// Parses an entry of training.dataset_mix. Throws ConfigError naming the entry.
MixEntry parse_mix_entry(const std::string& text);

// Returns `path`, or TorchTitan's location of that kind: ./tests/assets/c4_test for c4_test.
std::optional<std::string> dataset_path(const std::string& kind, const std::optional<std::string>& path);

struct NamedDataset {
  std::string key;   // key that sets the path: "training.dataset_path"
  std::string kind;  // as written
  std::string path;
};

// Returns the datasets that a run reads, except those without a path.
std::vector<NamedDataset> named_datasets(const JobConfig& config);

// Returns true if a run has conversations to put into words: a dataset of kind chat, or a chat.chat_template.
bool uses_chat_template(const JobConfig& config);

// Finds errors in the kinds and in the entries of the mixture.
std::vector<Fault> find_wrong_datasets(const JobConfig& config);

// Explains why a run cannot start without the path, and what to set.
Fault missing_dataset(const std::string& table, const std::string& kind);

}  // namespace titan::config
