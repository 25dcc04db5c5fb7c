// Lengths of all samples of a chat dataset, which packing needs before the first batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/conversations/chat_samples.h"
#include "data/sources/token_source.h"

namespace titan::data {

// Policy for a conversation with more tokens than a row: chat.too_long.
enum class TooLong { kError, kCut, kDrop };

// Throws ConfigError for anything but "error", "cut" and "drop".
TooLong parse_too_long(const std::string& text);

struct LengthOptions {
  std::int64_t most_tokens = 0;  // of a sample
  TooLong too_long = TooLong::kError;
  OnBadRecord on_bad_record = OnBadRecord::kError;
};

struct SampleCounts {
  std::int64_t labels = 0;        // of all samples together
  std::int64_t bad_records = 0;   // left out with OnBadRecord::kSkip
  std::int64_t cut = 0;           // samples that were too long
  std::int64_t dropped = 0;       // left out because they are too long
  std::int64_t unlabeled = 0;     // left out because no label is left, after the cut or in an empty answer
  std::int64_t split_tokens = 0;  // with ChatSamples::Sample::splits_token
  std::int64_t open_ends = 0;     // with ChatSamples::Sample::ends_open
};

struct SampleLengths : SampleCounts {
  std::vector<std::int32_t> tokens = {};  // by sample, at most most_tokens; 0 if it is left out
};

// Returns the tokens of a sample, cut to the options' length; empty if the sample is left out because of its length or
// its labels. Throws BadRecord, and DataError for a sample that is too long with TooLong::kError.
std::vector<std::int32_t> fitted_tokens(const ChatSamples& samples, std::int64_t index, const LengthOptions& options);

// Renders and tokenizes every sample, on as many threads as the process may keep busy. Throws what is wrong with the
// first sample that is at fault. Logs the first of the bad records that are skipped.
SampleLengths measure(const ChatSamples& samples, const LengthOptions& options);

// Returns measure(), or its result as an earlier start with the same `key` left it in the cache folder
// (data/io/cache.h). The processes of a machine that ask at once wait for one of them. If nothing can be cached, logs a
// warning.
SampleLengths cached_lengths(const ChatSamples& samples, const LengthOptions& options, const std::string& name,
                             std::uint64_t key);

}  // namespace titan::data
