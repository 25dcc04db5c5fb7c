// The datasets that a configuration names, by kind and place. Opens none: data/dataset_kinds.h does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// What training.dataset may be: text, jsonl, indexed, and TorchTitan's names c4_test, c4 and c4_validation.
std::vector<std::string> dataset_kinds();

// Kinds are known whatever their case.
std::string lower_case(std::string text);

// One entry of training.dataset_mix: "WEIGHT KIND PATH", for example "0.7 jsonl /data/web pages".
struct MixEntry {
  double weight = 1;
  std::string kind;
  std::string path;
};

// Throws ConfigError naming the entry.
MixEntry parse_mix_entry(const std::string& text);

// `path`, or where TorchTitan has the data of that kind: its c4_test lies in ./tests/assets/c4_test.
std::optional<std::string> dataset_path(const std::string& kind, const std::optional<std::string>& path);

struct NamedDataset {
  std::string key;   // that names its path: "training.dataset_path"
  std::string kind;  // as written
  std::string path;
};

// Those that a run reads, but for those without a path.
std::vector<NamedDataset> named_datasets(const JobConfig& config);

// What is wrong with the kinds and the mixture's entries.
std::vector<Fault> find_wrong_datasets(const JobConfig& config);

// Why a run cannot start without the path that is not set, and what to set.
Fault missing_dataset(const std::string& table, const std::string& kind);

}  // namespace titan::config
