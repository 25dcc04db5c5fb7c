// Facts about a run's tokenizer that the engine needs; the tokenizer itself stays in the application.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "facts/model_naming.h"

namespace titan {

struct TokenizerFacts {
  std::string fingerprint;          // identifies the tokenizer; saved in checkpoints
  std::string chat_template;        // text of the run's chat template, saved in checkpoints; "" if it has none
  std::string chat_special_tokens;  // variables of the template, as a JSON object; "" if there is no template
  // The token that ends a document. Required if TrainSpec::separates_documents is true.
  std::optional<std::int64_t> document_end = {};
  // Called on rank 0 each time weights in Hugging Face's format are written. Null if the tokenizer is unknown.
  std::function<HuggingFaceTokenizer()> hugging_face = {};
};

}  // namespace titan
