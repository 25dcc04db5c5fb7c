// Unicode normalization form C, as the `tokenizers` package does it.
#pragma once

#include <string>
#include <string_view>

namespace titan::data {

// True when `text` cannot change: the common case, found fast.
bool is_surely_nfc(std::string_view text);

// `text` (valid UTF-8) in form C. The package's normalizer knows an older Unicode than utf8proc does: characters that
// are new to it stay as and where they are.
std::string to_nfc(std::string_view text);

}  // namespace titan::data
