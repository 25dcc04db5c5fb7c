// Split attention for which keys and values go around the ranks.
#pragma once

#include <vector>

#include "parallel/context/attention_blocks.h"
#include "parallel/context/shared_rows.h"

namespace titan::parallel {

// In each of as many steps as there are ranks, a rank attends to the keys and values of one rank, while it sends them
// to the next rank and gets others from the one before. The steps' results are merged by the logarithms of their sums,
// in float32. In backward, the gradients of keys and values follow them around, and come home after one more step.
class RingRows : public SharedRows {
 public:
  // `tokens`: of each rank, by split_row(). `lengths`: of the documents of `rows` rows.
  RingRows(dist::ProcessGroup& group, const std::vector<TokenRanges>& tokens, std::int64_t rows,
           const at::Tensor& lengths);

  nn::AttentionPart forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_grad, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const nn::AttentionPart& result) override;

 private:
  dist::ProcessGroup& group_;
  std::vector<std::vector<AttentionBlock>> blocks_;  // by step
};

}  // namespace titan::parallel
