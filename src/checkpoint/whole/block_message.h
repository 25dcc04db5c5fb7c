// A block of a tensor that one rank sends to the others, or the reason why it cannot. The mark is at the end, so that
// the elements keep the alignment of the string.
#pragma once

#include <string>
#include <utility>

namespace titan::checkpoint {

// Adds the mark of a block that is there, or of an error's text.
inline std::string make_block(std::string bytes) { return std::move(bytes += '+'); }
inline std::string make_error(std::string text) { return std::move(text += '!'); }

// True if the message is a block.
inline bool is_block(const std::string& message) { return message.ends_with('+'); }

// Returns the text of a message that is not a block.
inline std::string error_of(const std::string& message) {
  return message.empty() ? "no answer" : message.substr(0, message.size() - 1);
}

}  // namespace titan::checkpoint
