#include "parallel/context/ring_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "parallel/context/block_views.h"

namespace titan::parallel {
namespace {

// A tensor that all ranks of a ring pass on to the next rank. All calls are collective.
class Passed {
 public:
  Passed(dist::ProcessGroup& group, const at::Tensor& first) : group_(group), now_(buffer_like(first)) {
    now_.copy_(first);
  }

  // Returns the tensor that this rank has: its own, or what the last finished pass has brought.
  const at::Tensor& now() const { return now_; }

  // Starts to send now(), which must not be written from here on, and to receive the tensor of the rank before.
  void start() {
    next_ = buffer_like(now_);
    const int ranks = group_.size(), rank = group_.rank();
    works_ = group_.exchange({{now_, (rank + 1) % ranks}}, {{next_, (rank + ranks - 1) % ranks}});
  }
  void finish() {
    dist::wait_for_all(works_);
    works_.clear();
    now_ = std::move(next_);
  }

 private:
  at::Tensor buffer_like(const at::Tensor& tensor) const {
    return group_.exchange_buffer(tensor.numel(), tensor.options()).view(tensor.sizes());
  }

  dist::ProcessGroup& group_;
  at::Tensor now_, next_;
  std::vector<dist::Work> works_;
};

}  // namespace

RingRows::RingRows(dist::ProcessGroup& group, const std::vector<TokenRanges>& tokens, std::int64_t rows,
                   const at::Tensor& lengths)
    : group_(group) {
  const int ranks = group.size(), rank = group.rank();
  std::int64_t length = 0;
  for (const TokenRanges& ranges : tokens) length = std::max(length, ranges.back().end);
  for (int step = 0; step < ranks; ++step)
    blocks_.push_back(attention_blocks(tokens[static_cast<std::size_t>(rank)],
                                       tokens[static_cast<std::size_t>((rank + ranks - step) % ranks)], rows, length,
                                       lengths));
}

nn::AttentionPart RingRows::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  Passed keys_and_values(group_, at::stack({k, v}));
  const nn::AttentionPart merged = nn::part_of_no_keys(q);
  for (std::size_t step = 0; step < blocks_.size(); ++step) {
    const bool is_last = step + 1 == blocks_.size();
    const at::Tensor now = keys_and_values.now();
    if (!is_last) keys_and_values.start();
    for (const AttentionBlock& block : blocks_[step])
      nn::merge_parts({queries_of(merged.out, block), queries_of(merged.sums, block)}, attend_block(block, q, now));
    if (!is_last) keys_and_values.finish();
  }
  return {merged.out.to(q.scalar_type()), merged.sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> RingRows::backward(const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const nn::AttentionPart& result) {
  Passed keys_and_values(group_, at::stack({k, v}));
  std::optional<Passed> gradients;  // of the keys and values that this rank has
  auto q_grad = at::zeros(q.sizes(), q.options().dtype(at::kFloat));
  for (std::size_t step = 0; step < blocks_.size(); ++step) {
    const bool is_last = step + 1 == blocks_.size();
    const at::Tensor now = keys_and_values.now();
    if (!is_last) keys_and_values.start();
    auto grads = at::zeros(now.sizes(), q_grad.options());
    for (const AttentionBlock& block : blocks_[step])
      queries_of(q_grad, block).add_(attend_block_backward(block, out_grad, q, now, result, grads));
    // The summands of the ranks before have travelled while this rank computed its own.
    if (gradients) {
      gradients->finish();
      gradients->now().add_(grads);
    } else {
      gradients.emplace(group_, grads);
    }
    gradients->start();
    if (!is_last) keys_and_values.finish();
  }
  gradients->finish();
  const auto own = gradients->now().to(k.scalar_type());
  return {q_grad.to(q.scalar_type()), own[0], own[1]};
}

}  // namespace titan::parallel
