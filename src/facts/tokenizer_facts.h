// What the engine must know of a run's tokenizer, which itself stays with the application.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "facts/model_naming.h"

namespace titan {

struct TokenizerFacts {
  std::string fingerprint;  // tells the tokenizer from others; kept in checkpoints
  // The token that ends a document. Needed where TrainSpec::separates_documents says so.
  std::optional<std::int64_t> document_end;
  // Called on rank 0 each time that weights in Hugging Face's format are written. Null: the tokenizer is not known.
  std::function<HuggingFaceTokenizer()> hugging_face;
};

}  // namespace titan
