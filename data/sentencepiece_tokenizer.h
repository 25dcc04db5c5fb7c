// SentencePiece models (tokenizer.model). The only file that sees the library is sentencepiece_tokenizer.cpp.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizer.h"

namespace titan::data {

// Throws DataError when `file` is not a SentencePiece model.
//
// Encoding gives the ids of SentencePieceProcessor::Encode. When the model allows it (see can_encode_by_words), text is
// encoded word by word with a cache of words, which is about three times faster and needs no memory in proportion to
// the document: BPE in the library keeps about 150 bytes for every byte of its input. `by_words` false turns that off;
// the tests compare both.
std::shared_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::filesystem::path& file, bool by_words = true);

}  // namespace titan::data
