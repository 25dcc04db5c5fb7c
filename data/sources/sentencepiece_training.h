// Makes a SentencePiece model from text.
#pragma once

#include <cstdint>
#include <string>

#include "data/sources/text_source.h"
#include "data/sources/token_source.h"

namespace titan::data {

struct SentencePieceTraining {
  std::int64_t vocab_size = 0;
  bool unigram = false;  // else byte-pair encoding
  OnBadRecord on_bad_record = OnBadRecord::kError;
};

struct TrainedSentencePiece {
  std::string model;             // the bytes of a tokenizer.model
  std::int64_t bad_records = 0;  // that were skipped
};

// A tokenizer of exactly `vocab_size` pieces, made of all documents of `source`, line by line. Text
// is taken as it is (no normalization, white space kept, digits one by one), and whatever has no piece becomes byte
// pieces, so that every text decodes to itself (but for U+2581, which reads as a space); <unk> is 0, <s> 1, </s> 2.
// Holds the text in memory. Throws DataError when the library cannot, saying which sizes it can: too little text for so
// many pieces, or fewer pieces than characters and bytes. A record that cannot be used is an error, or skipped.
TrainedSentencePiece train_sentencepiece(const TextSource& source, const SentencePieceTraining& options);

}  // namespace titan::data
