// Makes the commented starter configuration that `titan-train init` prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::models {

struct StarterOptions {
  std::string model = "llama3/debugmodel";  // NAME/FLAVOR, or a flavor that only one model has
  std::optional<std::string> from;          // folder of a model in Hugging Face's format, in place of `model`
  std::optional<std::int64_t> gpus;         // 0: CPU; nullopt: as many as the model needs
  std::optional<std::int64_t> seq_len;      // tokens; nullopt: what suits the model
  std::optional<std::string> dataset_path;
  std::optional<std::string> dataset;    // its kind; nullopt: guessed from dataset_path
  std::optional<std::string> tokenizer;  // folder
  std::string assets = "./assets";       // folder with the default tokenizer and corpus
};

// Returns TOML with values for the size of the model, the length of its sequences, and the number of GPUs with 80 GB
// (405B: 141 GB). Throws ConfigError for an unknown model, for a folder without one, and for fewer GPUs than can hold
// it.
std::string starter_config(const StarterOptions& options);

// Returns the valid values of StarterOptions::model: "llama3/debugmodel", "llama3/8B", ...
std::vector<std::string> starter_models();

}  // namespace titan::models
