// SentencePiece models (tokenizer.model). Only the sentencepiece_*.cpp files include the library's headers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Says which of the texts between special tokens get a space in front, if the model adds one.
enum class SpacePrefix { kEachText, kFirstText };

// Throws DataError when `file` is not a SentencePiece model.
//
// Encodes to the ids of SentencePieceProcessor::Encode. If the model allows it (see can_encode_by_words), text is
// encoded word by word with a cache of words: about three times faster on source code, and the library's working
// memory, many times the size of its input, is that of one word. `by_words` = false turns this off; the tests compare
// both.
std::shared_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::filesystem::path& file, bool by_words = true,
                                                        SpacePrefix prefix = SpacePrefix::kEachText);

// Returns the model's pieces by id. Throws DataError when `file` is not a SentencePiece model.
std::vector<std::string> read_sentencepiece_pieces(const std::filesystem::path& file);

}  // namespace titan::data
