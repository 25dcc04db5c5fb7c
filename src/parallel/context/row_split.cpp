#include "parallel/context/row_split.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"

namespace titan::parallel {
namespace {

// kByWork deals out at most so many parts to a rank, of at least so many tokens: small parts balance better, and
// larger ones attend faster.
constexpr std::int64_t kMostParts = 16, kFewestTokens = 32;

void append(TokenRanges& ranges, TokenRange range) {
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

// Returns the ranges of a rank that has these of many equal parts, in ascending order.
TokenRanges ranges_of(const std::vector<std::int64_t>& parts, std::int64_t tokens_of_part) {
  TokenRanges ranges;
  for (const std::int64_t part : parts) append(ranges, {part * tokens_of_part, (part + 1) * tokens_of_part});
  return ranges;
}

// Returns the number of keys that the tokens of each part attend to, in all rows together.
std::vector<std::int64_t> work_of_parts(std::int64_t num_parts, std::int64_t tokens_of_part, std::int64_t length,
                                        const at::Tensor& lengths) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(num_parts), 0);
  std::int64_t position = 0;  // in the row
  for (const std::int64_t document : at::IntArrayRef(lengths.const_data_ptr<std::int64_t>(), lengths.numel())) {
    for (std::int64_t done = 0; done < document;) {
      const std::int64_t part = position / tokens_of_part;
      const std::int64_t count = std::min((part + 1) * tokens_of_part - position, document - done);
      // The token after `done` others of its document attends to done + 1 keys.
      work[static_cast<std::size_t>(part)] += count * done + count * (count + 1) / 2;
      done += count;
      position += count;
    }
    position %= length;
  }
  return work;
}

// Returns the largest number of parts for a rank, at least 2, that divides its tokens into parts which are not too
// small.
std::int64_t parts_of_rank(std::int64_t tokens) {
  for (std::int64_t parts = kMostParts; parts > 2; --parts)
    if (tokens % parts == 0 && tokens / parts >= kFewestTokens) return parts;
  return 2;
}

// Deals out the parts, most work first, each to the rank with the least work so far that has room.
std::vector<TokenRanges> split_by_work(std::int64_t length, int ranks, const at::Tensor& lengths) {
  const std::int64_t room = parts_of_rank(length / ranks), num_parts = room * ranks;
  const auto work = work_of_parts(num_parts, length / num_parts, length, lengths);
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<std::vector<std::int64_t>> parts(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> work_of_rank(parts.size(), 0);
  for (const std::size_t part : order) {
    std::size_t best = parts.size();
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (std::ssize(parts[rank]) == room) continue;
      if (best == parts.size() || work_of_rank[rank] < work_of_rank[best]) best = rank;
    }
    parts[best].push_back(static_cast<std::int64_t>(part));
    work_of_rank[best] += work[part];
  }
  std::vector<TokenRanges> out;
  for (auto& of_rank : parts) {
    std::ranges::sort(of_rank);
    out.push_back(ranges_of(of_rank, length / num_parts));
  }
  return out;
}

}  // namespace

std::vector<TokenRanges> split_row(LoadBalance balance, std::int64_t length, int ranks, const at::Tensor& lengths) {
  TITAN_CHECK(length % (std::int64_t{2} * ranks) == 0,
              "a row of " + std::to_string(length) + " tokens for " + std::to_string(ranks) + " ranks");
  if (balance == LoadBalance::kByWork) return split_by_work(length, ranks, lengths);
  std::vector<TokenRanges> out;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    out.push_back(balance == LoadBalance::kNone ? ranges_of({rank}, length / ranks)
                                                : ranges_of({rank, 2 * ranks - 1 - rank}, length / (2 * ranks)));
  return out;
}

at::Tensor positions_of(const TokenRanges& ranges) {
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : ranges) parts.push_back(at::arange(range.begin, range.end, at::kLong));
  return at::cat(parts);
}

}  // namespace titan::parallel
