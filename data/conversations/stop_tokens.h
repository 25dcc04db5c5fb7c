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

// True if the folder has a tokenizer, and not the one in `path`, or it cannot be known.
bool has_other_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& path);

// The tokens with which a folder's model ends its texts.
struct FolderStops {
  std::vector<std::int64_t> ids;
  // False if they are those of config.json, into which transformers writes a class's default, whatever the tokenizer.
  bool are_chosen = true;
};

// Returns the tokens that mean to `tokenizer`, which was opened at `path`, what `stops` mean to the model in `folder`:
// all of them if the folder has no other tokenizer, else the special tokens that are written alike, with a warning of
// those that are not there. Only special tokens, without a warning, if they are not chosen.
std::vector<std::int64_t> stops_that_stay(const FolderStops& stops, const std::filesystem::path& folder,
                                          const Tokenizer& tokenizer, const std::filesystem::path& path);

}  // namespace titan::data
