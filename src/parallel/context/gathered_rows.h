// Split attention for which each rank gathers the keys and values of whole rows.
#pragma once

#include <vector>

#include "parallel/context/attention_blocks.h"
#include "parallel/context/shared_rows.h"

namespace titan::parallel {

// Each query has all its keys in one block, so nothing is merged. Memory for the keys and values of whole rows exists
// during forward and again during backward.
class GatheredRows : public SharedRows {
 public:
  // `tokens`: of each rank, by split_row(). `lengths`: of the documents of `rows` rows.
  GatheredRows(dist::ProcessGroup& group, const std::vector<TokenRanges>& tokens, std::int64_t rows,
               const at::Tensor& lengths);

  nn::AttentionPart forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_grad, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const nn::AttentionPart& result) override;

 private:
  // A range of the row, and the place of its tokens among those of the rank that has them.
  struct Piece {
    TokenRange range;
    std::int64_t rank = 0, first = 0;
  };
  // Returns keys and values [2, B, K, T, E] of whole rows.
  at::Tensor gather(const at::Tensor& k, const at::Tensor& v);
  // Sums gradients [2, B, K, T, E] over the ranks. Returns those of this rank's tokens, [2, B, K, N, E].
  at::Tensor scatter(const at::Tensor& grads);

  dist::ProcessGroup& group_;
  std::vector<Piece> pieces_;  // the row, in its order
  std::vector<AttentionBlock> blocks_;
};

}  // namespace titan::parallel
