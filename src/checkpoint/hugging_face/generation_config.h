// generation_config.json: with which tokens a text of a model ends, and how transformers' generate() chooses tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "facts/model_naming.h"

namespace titan::checkpoint {

inline constexpr const char* kGenerationConfig = "generation_config.json";

// Returns generation_config.json of an export: the tokenizer's `generation_defaults`, with BOS and the tokens that end
// a text (one number, or a list of several) in place of theirs where the tokenizer has them. A key that neither has is
// an explicit null, because readers use other models' tokens if it is missing. Throws CheckpointError if the defaults
// are not a JSON object.
std::string make_generation_config(const HuggingFaceTokenizer& tokenizer);

// Returns the tokens that end a text, like transformers' generate(): eos_token_id of the folder's
// generation_config.json, else of its config.json; empty if neither has it. Throws CheckpointError for a file that
// cannot be read.
std::vector<std::int64_t> read_stop_tokens(const std::filesystem::path& folder);

// Holds what a folder says of how its model generates.
struct GenerationDefaults {
  std::string json = {};                    // its generation_config.json; "" if it has none
  std::vector<std::int64_t> stop_ids = {};  // its eos_token_id; without such a file, that of config.json
};

// Returns the defaults, a JSON object or "", without those that are ids of tokens: for another tokenizer.
std::string without_token_ids(const std::string& json);

// Returns what stays of the folder from which a training started; nothing of "". If the folder is gone, or its file
// cannot be read, warns with `what`, which is lost: "the export's generation_config.json has nothing".
GenerationDefaults kept_defaults(const std::filesystem::path& folder, const std::string& what);

}  // namespace titan::checkpoint
