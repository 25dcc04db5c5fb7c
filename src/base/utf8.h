// Checks whether bytes are UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace titan {

// Returns the offset of the first byte that is not UTF-8 (RFC 3629: no overlong forms, no surrogates), or nullopt.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Returns `text` with each byte that is not UTF-8 written as "\xFF", for messages.
std::string escape_invalid_utf8(std::string_view text);

// Same, and control characters other than newline and tab likewise: a name in a broken file must not send commands to
// the terminal.
std::string printable(std::string_view text);

}  // namespace titan
