// Converts a SentencePiece model to a tokenizer.json of Hugging Face's `tokenizers` package, which transformers opens
// without SentencePiece.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace titan::data {

struct MadeTokenizerJson {
  std::string json;
  std::map<std::string, std::string> special_tokens;  // "bos_token" -> "<s>", for tokenizer_config.json
  std::string reason;                                 // why there is no `json`; "" if it was made
};

// Converts a model, given as the bytes of a tokenizer.model. The result gives the same ids for every text, except for
// one that spells out a special token ("</s>"): there the package sees the token, SentencePiece its characters.
// Supports byte-pair encodings that keep text unchanged (what `titan-train tokenizer train` makes, and Llama 2's); for
// others `reason` says why not. Throws DataError for bytes that are not a model, and if the result is found to give
// other ids (sentencepiece_check.h).
MadeTokenizerJson make_tokenizer_json(std::string_view model);

}  // namespace titan::data
