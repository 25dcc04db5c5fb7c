// Unicode normalization form C, as the `tokenizers` package does it.
#pragma once

#include <string>
#include <string_view>

namespace titan::data {

// True if `text` is certainly in form C: a fast test for the common case.
bool is_surely_nfc(std::string_view text);

// Returns `text` (valid UTF-8) in form C. The package's normalizer knows an older Unicode than utf8proc: newer
// characters stay unchanged and in place.
std::string to_nfc(std::string_view text);

}  // namespace titan::data
