// Dataset kind "chat": conversations, packed into rows.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/conversations/sample_lengths.h"
#include "data/sources/token_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Holds what conversations need besides a path: the table [chat].
struct ChatDataset {
  std::filesystem::path tokenizer;                     // the folder with the template, or a file in it
  std::string tokenizer_fingerprint;                   // tokenizer.h
  std::optional<std::filesystem::path> chat_template;  // instead of that folder's: chat.chat_template
  std::string too_long = "error";                      // chat.too_long
  std::string loss_weight = "token";                   // chat.loss_weight
  std::string on_bad_record = "error";
};

// Opens JSON lines of conversations as packs: items of seq_len + 1 tokens, each with one or more samples and what is
// left as padding, all marked (token_marks.h). Renders and tokenizes all of them first, or uses the lengths that an
// earlier start has found; an item is rendered again when it is read. Throws DataError, ConfigError.
std::shared_ptr<const TokenSource> open_chats(const std::filesystem::path& path,
                                              std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len,
                                              const ChatDataset& options);

}  // namespace titan::data
