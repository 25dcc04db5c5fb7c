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
  bool only_matches = false;  // drops the text between matches
};

struct TokenizerSpec {
  BpeSpec model;
  std::vector<AddedToken> added_tokens;
  std::vector<std::int32_t> added_ids;  // their ids according to the file
  bool nfc = false;
  std::vector<SplitStep> splits;
  bool add_prefix_space = false;
  std::vector<std::int32_t> prefix_ids;  // put before every text by the post-processor
  std::vector<std::int32_t> suffix_ids;
};

// Throws DataError for a file that is not a byte-level BPE tokenizer, and for everything in it that this program does
// not do exactly as the `tokenizers` package: the message has the key, its value and the reason. Ignores nothing.
TokenizerSpec read_tokenizer_json(const std::filesystem::path& file);

// True if the file says that it is a SentencePiece model in another format (model.byte_fallback). False for a file that
// cannot be read.
bool is_sentencepiece_json(const std::filesystem::path& file);

// Values that TorchTitan takes from tokenizer_config.json.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;  // also nullopt if it is the same text as bos_token: TorchTitan's rule
  std::vector<AddedToken> special_tokens;
};

// Returns an empty config if there is no such file. Throws DataError for one that TorchTitan would not accept either.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& file);

// A token whose id is given by a file beside the tokenizer's model.
struct NumberedToken {
  std::filesystem::path file;
  std::string content;
  std::int64_t id;
};

// Returns the added tokens of a Hugging Face folder, by file and id: those in tokenizer.json, added_tokens.json and
// tokenizer_config.json, as far as these files exist. Throws DataError if one of them cannot be read.
std::vector<NumberedToken> read_added_tokens(const std::filesystem::path& folder);

// True if, in a Hugging Face folder, every text between special tokens begins with a space that is not there, and not
// only the first: by the normalizer and the pre-tokenizer of tokenizer.json, else by "legacy" in tokenizer_config.json.
// True if neither says it. Throws DataError if one of them cannot be read.
bool prefixes_each_text(const std::filesystem::path& folder);

}  // namespace titan::data
