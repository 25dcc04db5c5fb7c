// Reads a Hugging Face tokenizer: tokenizer.json, and tokenizer_config.json beside it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"

namespace titan::data {

// One step of the pre-tokenizer.
struct SplitStep {
  std::string pattern;        // Oniguruma's syntax
  bool only_matches = false;  // what lies between matches is dropped
};

struct TokenizerSpec {
  BpeSpec model;
  std::vector<AddedToken> added_tokens;
  std::vector<std::int32_t> added_ids;  // that the file claims for them
  bool nfc = false;
  std::vector<SplitStep> splits;
  bool add_prefix_space = false;
  std::vector<std::int32_t> prefix_ids;  // that the post-processor puts around every text
  std::vector<std::int32_t> suffix_ids;
};

// Throws DataError for a file that is not a byte-level BPE tokenizer, and for everything in it that this program does
// not do exactly as the `tokenizers` package: the message has the key, its value and the reason. Nothing is left out.
TokenizerSpec read_tokenizer_json(const std::filesystem::path& file);

// What TorchTitan takes from tokenizer_config.json.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;  // nothing, too, when it is the same text as bos_token: TorchTitan's rule
  std::vector<AddedToken> special_tokens;
};

// All empty when there is no such file. Throws DataError for one that TorchTitan would not take either.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& file);

// A token to which a file beside the tokenizer's model gives an id.
struct NumberedToken {
  std::filesystem::path file;
  std::string content;
  std::int64_t id;
};

// Returns the added tokens of a Hugging Face folder, by file and id: those in tokenizer.json, added_tokens.json and
// tokenizer_config.json, as far as these files are there. Throws DataError for a file that cannot be read so.
std::vector<NumberedToken> read_added_tokens(const std::filesystem::path& folder);

}  // namespace titan::data
