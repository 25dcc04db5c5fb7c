// Loads a serialized SentencePiece model, and reads its training and normalization options. The library does not export
// its protobuf classes, so the few fields are read from the wire format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace titan::data {

// U+2581, the symbol for a space inside pieces.
inline constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";

inline constexpr std::int64_t kModelTypeBpe = 2;

struct SentencePieceModelInfo {
  // Defaults are those of sentencepiece_model.proto.
  std::int64_t model_type = 1;  // trainer_spec.model_type: 1 unigram, kModelTypeBpe, 3 word, 4 char
  bool treat_whitespace_as_suffix = false;
  bool has_charsmap = false;  // normalizer_spec.precompiled_charsmap: false for the identity normalization
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_user_defined = false;  // a piece of type USER_DEFINED
};

// Loads `model` into `processor`. Returns why the library cannot use it, "" if it can: some faults of a model are a
// status of the library, others an exception.
std::string load_sentencepiece(std::string_view model, sentencepiece::SentencePieceProcessor& processor);

// Throws DataError on bytes that are not a protobuf message.
SentencePieceModelInfo read_sentencepiece_model_info(std::string_view serialized);

}  // namespace titan::data
