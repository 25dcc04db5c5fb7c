// What weights in Hugging Face's format need beside the numbers: names, and the tokenizer's files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace titan {

// A parameter in Hugging Face's format: its name there, and the attention heads within which its rows are in the order
// that their rotary embedding wants (0: the same rows).
struct HuggingFaceName {
  std::string name;
  std::int64_t rotary_heads = 0;
};

// A value of a config.json that is not that of a model here: our key ("model.args.rope_theta"), and both in words.
struct HuggingFaceDifference {
  std::string key;
  std::string theirs;
  std::string ours;
};

// What stands of the tokenizer beside weights in Hugging Face's format.
struct HuggingFaceTokenizer {
  std::map<std::string, std::string> files;  // name -> content
  std::optional<std::int64_t> bos_id;        // nothing where it has none, or is not known
  std::optional<std::int64_t> eos_id;
};

}  // namespace titan
