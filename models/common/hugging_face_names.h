// How an architecture of Hugging Face's transformers calls the parameters of ours.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "facts/model_naming.h"

namespace titan::models {

struct HuggingFaceNames {
  std::function<HuggingFaceName(const std::string& fqn)> name_of;  // `fqn` must be a parameter
  std::function<std::optional<std::string>(const std::string& name)> fqn_of;
  std::string embedding, output;  // our names of the two that tie_word_embeddings makes one
};

}  // namespace titan::models
