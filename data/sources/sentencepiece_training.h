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
  std::int64_t bad_records = 0;  // records skipped
};

// Trains a tokenizer of exactly `vocab_size` pieces on all documents of `source`, line by line. Text is kept unchanged
// (no normalization, white space kept, digits one by one), and characters without a piece become byte pieces, so that
// every text decodes to itself (except U+2581, which decodes to a space); <unk> is 0, <s> 1, </s> 2. Holds the text in
// memory. Throws DataError if the library fails, saying which sizes are possible: too little text for so many pieces,
// or fewer pieces than characters and bytes. An unusable record is an error, or skipped.
TrainedSentencePiece train_sentencepiece(const TextSource& source, const SentencePieceTraining& options);

}  // namespace titan::data
