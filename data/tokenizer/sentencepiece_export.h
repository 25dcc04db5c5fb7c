// A SentencePiece model as a tokenizer.json of Hugging Face's `tokenizers` package, which transformers opens without
// knowing SentencePiece.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace titan::data {

struct MadeTokenizerJson {
  std::string json;
  std::map<std::string, std::string> special_tokens;  // "bos_token" -> "<s>", as tokenizer_config.json has them
  std::string reason;                                 // why there is none; "" when it was made
};

// `model`: the bytes of a tokenizer.model. The same ids for every text, but for one that spells out a special token
// ("</s>"): there the package sees the token, SentencePiece its characters. Made of byte-pair encodings that keep text
// as it is (what `titan-train tokenizer train` makes, and Llama 2's); of others the reason says what is in the way.
// Throws DataError on bytes that are not a model, and where the result is found to give other ids
// (sentencepiece_check.h).
MadeTokenizerJson make_tokenizer_json(std::string_view model);

}  // namespace titan::data
