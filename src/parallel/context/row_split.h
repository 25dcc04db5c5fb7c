// How the tokens of a row are dealt out to the ranks that share it (context parallelism).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace titan::parallel {

enum class LoadBalance {
  kNone,      // rank r has the r-th of equal parts; the last rank attends to most keys
  kHeadTail,  // rank r has the r-th part from the front and the r-th from the end, of 2 x ranks equal parts
  kByWork     // small equal parts, so many to each rank, such that ranks have about as many keys to attend to
};

// The tokens from `begin` to `end` - 1 of a row.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const TokenRange&) const = default;
};

// The tokens of a row that a rank has, in ascending order; no two ranges touch.
using TokenRanges = std::vector<TokenRange>;

// Returns the ranges of each rank, the same for all rows of a batch; every rank has length / ranks tokens. `lengths`:
// the lengths of the documents, row by row (nn/documents.h), int64 [documents] on the host with a sum that is a
// multiple of `length`. Only kByWork reads them: a token's work is the number of keys that it attends to. After
// PyTorch's _HeadTailLoadBalancer and _PTRRLoadBalancer (torch/distributed/tensor/experimental/_context_parallel).
// Throws InternalError if `length` is not a multiple of 2 x ranks.
std::vector<TokenRanges> split_row(LoadBalance balance, std::int64_t length, int ranks, const at::Tensor& lengths);

// Returns the positions of the tokens in their row, int64 [tokens] on the host.
at::Tensor positions_of(const TokenRanges& ranges);

}  // namespace titan::parallel
