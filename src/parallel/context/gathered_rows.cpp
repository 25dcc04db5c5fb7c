#include "parallel/context/gathered_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "parallel/autograd_collectives.h"
#include "parallel/context/block_views.h"

namespace titan::parallel {

GatheredRows::GatheredRows(dist::ProcessGroup& group, const std::vector<TokenRanges>& tokens, std::int64_t rows,
                           const at::Tensor& lengths)
    : group_(group) {
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    std::int64_t first = 0;
    for (const TokenRange& range : tokens[rank]) {
      pieces_.push_back({range, static_cast<std::int64_t>(rank), first});
      first += range.end - range.begin;
    }
  }
  std::ranges::sort(pieces_, {}, [](const Piece& piece) { return piece.range.begin; });
  const std::int64_t length = pieces_.back().range.end;
  blocks_ = attention_blocks(tokens[static_cast<std::size_t>(group.rank())], {{0, length}}, rows, length, lengths);
}

at::Tensor GatheredRows::gather(const at::Tensor& k, const at::Tensor& v) {
  const auto parts = gather_parts(at::stack({k, v}), group_);
  std::vector<at::Tensor> row;
  for (const Piece& piece : pieces_)
    row.push_back(
        parts[static_cast<std::size_t>(piece.rank)].narrow(3, piece.first, piece.range.end - piece.range.begin));
  return at::cat(row, 3);
}

at::Tensor GatheredRows::scatter(const at::Tensor& grads) {
  std::vector<std::vector<at::Tensor>> of_rank(static_cast<std::size_t>(group_.size()));
  for (const Piece& piece : pieces_)  // those of a rank are in ascending order
    of_rank[static_cast<std::size_t>(piece.rank)].push_back(
        grads.narrow(3, piece.range.begin, piece.range.end - piece.range.begin));
  std::vector<at::Tensor> parts;
  for (const auto& pieces : of_rank) parts.push_back(at::cat(pieces, 3));
  return reduce_scatter(at::stack(parts), 0, group_)[0];
}

nn::AttentionPart GatheredRows::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto row = gather(k, v);
  nn::AttentionPart result{empty_heads_like(q), at::empty(q.sizes().slice(0, 3), q.options().dtype(at::kFloat))};
  for (const AttentionBlock& block : blocks_) {
    const auto part = attend_block(block, q, row);
    queries_of(result.out, block).copy_(part.out);
    queries_of(result.sums, block).copy_(part.sums);
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> GatheredRows::backward(const at::Tensor& out_grad, const at::Tensor& q,
                                                                      const at::Tensor& k, const at::Tensor& v,
                                                                      const nn::AttentionPart& result) {
  const auto row = gather(k, v);
  auto q_grad = empty_heads_like(q);
  auto row_grad = at::zeros(row.sizes(), row.options().dtype(at::kFloat));
  for (const AttentionBlock& block : blocks_)
    queries_of(q_grad, block).copy_(attend_block_backward(block, out_grad, q, row, result, row_grad));
  const auto own = scatter(row_grad).to(k.scalar_type());
  return {q_grad, own[0], own[1]};
}

}  // namespace titan::parallel
