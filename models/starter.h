// A configuration to start from, with comments: what `titan-train init` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::models {

struct StarterOptions {
  std::string model = "llama3/debugmodel";  // NAME/FLAVOR, or a flavor that one model alone has
  std::optional<std::int64_t> gpus;         // 0: on CPU; when not given, as many as the model needs
  std::optional<std::string> dataset_path;
  std::optional<std::string> dataset;    // its kind; when not given, by the path's name
  std::optional<std::string> tokenizer;  // folder
};

// TOML whose values suit the size of the model and the number of GPUs, of 80 GB (405B: 141 GB). Throws ConfigError for
// a model that there is not, and for fewer GPUs than can hold it.
std::string starter_config(const StarterOptions& options);

// Returns what StarterOptions::model may be: "llama3/debugmodel", "llama3/8B", ...
std::vector<std::string> starter_models();

}  // namespace titan::models
