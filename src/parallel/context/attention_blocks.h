// Says which queries of a rank attend to which keys of another, where ranks share rows: in rectangles, each with all
// keys visible or with a causal square at its end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/context/row_split.h"

namespace titan::parallel {

// Rows, queries and keys that attend in one call. Query i of the block sees its keys j <= i + offset.
struct AttentionBlock {
  std::int64_t first_row = 0, rows = 0;
  std::int64_t first_query = 0, queries = 0;  // among the tokens of the rank with the queries
  std::int64_t first_key = 0, keys = 0;       // among the tokens of the rank with the keys
  std::int64_t offset = 0;                    // `keys` if each query sees each key

  bool operator==(const AttentionBlock&) const = default;
};

// Returns the blocks in which the queries at `query_tokens` attend to the keys at `key_tokens` of `rows` rows with
// `length` tokens. A token attends to itself and to the tokens before it in its document; `lengths` as in split_row().
// `key_tokens` is one range over the whole row, or has each range of `query_tokens` either whole or not at all. If
// every row holds one document, a block has all rows. Blocks are in the order of their rows and queries. A query is in
// one block at most.
std::vector<AttentionBlock> attention_blocks(const TokenRanges& query_tokens, const TokenRanges& key_tokens,
                                             std::int64_t rows, std::int64_t length, const at::Tensor& lengths);

}  // namespace titan::parallel
