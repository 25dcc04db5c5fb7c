// What weights in Hugging Face's format need beside the numbers: names, and the tokenizer's files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace titan {

// A parameter in Hugging Face's format.
struct HuggingFaceName {
  std::string name;
  // Number of attention heads in dim 0, each of which holds the even rows of ours first, then the odd ones: rotary
  // embedding turns halves there and pairs here. 0: the rows are the same.
  std::int64_t rotary_heads = 0;
};

// A value of a config.json that differs from that of the model here.
struct HuggingFaceDifference {
  std::string key;     // ours: "model.args.rope_theta"
  std::string theirs;  // "10000"
  std::string ours;
};

// What stands of the tokenizer beside weights in Hugging Face's format.
struct HuggingFaceTokenizer {
  std::map<std::string, std::string> files;  // name -> content
  std::optional<std::int64_t> bos_id;        // nothing where it has none, or is not known
  std::optional<std::int64_t> eos_id;
};

}  // namespace titan
