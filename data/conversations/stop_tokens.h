// Tokens with which a text of a model ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/conversations/chat_format.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Returns the special token that the template writes behind an answer; nullopt if it writes none. Warns if it refuses a
// conversation of a question and an answer, and returns nullopt.
std::optional<std::int32_t> end_of_turn(const ChatFormat& format, const Tokenizer& tokenizer);

// Returns the tokens that end a text of a model, each once: the tokenizer's EOS, the end of a turn if there is one, and
// `others`.
std::vector<std::int64_t> stop_tokens(const Tokenizer& tokenizer, const std::optional<std::int32_t>& turn_end,
                                      const std::vector<std::int64_t>& others);

// Returns those of `ids`, which end a text of the model in `folder`, that end one with `tokenizer`, too, which was
// opened at `path`: all if the folder has no other tokenizer, else those that are special tokens. Warns of the rest.
// Throws DataError for files that cannot be read.
std::vector<std::int64_t> stops_that_stay(const std::vector<std::int64_t>& ids, const std::filesystem::path& folder,
                                          const Tokenizer& tokenizer, const std::filesystem::path& path);

}  // namespace titan::data
