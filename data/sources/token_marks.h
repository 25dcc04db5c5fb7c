// Marks on the tokens of a TokenRun, in the upper bits of their numbers. Plain text has none: every token is a label.
#pragma once

#include <cstdint>

namespace titan::data {

inline constexpr std::int32_t kNoLabel = 1 << 30;  // the token is not to be predicted
inline constexpr std::int32_t kBegins = 1 << 29;   // the token is the first of a sample
inline constexpr std::int32_t kMostIds = 1 << 29;  // ids of tokens are below

constexpr std::int64_t id_of(std::int64_t marked) { return marked & (kMostIds - 1); }
constexpr bool is_label(std::int64_t marked) { return (marked & kNoLabel) == 0; }
constexpr bool begins(std::int64_t marked) { return (marked & kBegins) != 0; }

}  // namespace titan::data
