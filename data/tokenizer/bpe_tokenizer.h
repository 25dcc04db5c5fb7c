// Byte-level BPE tokenizers in Hugging Face's format: Llama 3, Qwen, GPT-2 and their like.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Reads `file` (tokenizer.json) and the tokenizer_config.json beside it, if there is one. The ids are those of the
// `tokenizers` package. BOS and EOS are TorchTitan's choice: the config's bos_token and eos_token, added to a document
// unless the post-processor already adds them. Throws DataError for a tokenizer of another kind, and for everything
// that would not be done exactly alike.
std::shared_ptr<Tokenizer> make_bpe_tokenizer(const std::filesystem::path& file);

}  // namespace titan::data
