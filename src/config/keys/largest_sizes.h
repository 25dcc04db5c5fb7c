// Largest sizes of a model and a batch that are taken, beside kLargestWorld ranks. They lie far above any that exist,
// and keep the number of bytes of each weight and each activation within 64 bits. No torch.
#pragma once

#include <cstdint>

#include "base/env.h"

namespace titan::config {

inline constexpr std::int64_t kLargestWidth = std::int64_t{1} << 22;       // of the residual stream; also heads
inline constexpr std::int64_t kLargestHidden = 4 * kLargestWidth;          // width of the feed-forward
inline constexpr std::int64_t kMostLayers = 2'000;                         // to plan more of them takes minutes
inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 31;  // token ids have 32 bits, with a sign
inline constexpr std::int64_t kMostParameters = std::int64_t{1} << 50;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 27;  // of a sequence, and of a microbatch on one rank
inline constexpr std::int64_t kMostMicrobatches = 16'384;           // of a pipeline; to plan more takes seconds

}  // namespace titan::config
