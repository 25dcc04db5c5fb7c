#include <algorithm>
#include <array>
#include <utility>

#include "pipeline/rank_orders.h"

namespace titan::pipeline {
namespace {

// The rank's stage on the way down the V, and the one on the way up.
enum Side { kDown, kUp };

// Appends actions to a rank's order. Each takes the next microbatch of its side: forwards and backwards count apart.
class VOrder {
 public:
  VOrder(const PipelineSize& size, int rank) : size_(size), stages_{rank, size.num_stages() - 1 - rank} {}

  void forward(Side side) { add(next_forward(side)); }
  void backward(Side side) { add(next_backward(side, Kind::kBackward)); }

  // Appends the input gradient of a backward, and remembers its weight gradient.
  void input_gradient(Side side) {
    const Action action = next_backward(side, Kind::kInputGradient);
    add(action);
    owed_.push_back({action.stage, Kind::kWeightGradient, action.microbatch});
  }

  // Appends the weight gradient that was remembered first.
  void weight_gradient() { settle(owed_.begin()); }

  // Appends the weight gradient of a side that was remembered first. Returns false if there is none.
  bool weight_gradient(Side side) {
    const auto owed = std::ranges::find(owed_, stages_[side], &Action::stage);
    if (owed == owed_.end()) return false;
    settle(owed);
    return true;
  }

  // Appends a pair: a forward of one side, and a full backward of the other.
  void overlapped(Side forward_side) {
    const Action forward = next_forward(forward_side);
    steps_.emplace_back(forward, next_backward(forward_side == kDown ? kUp : kDown, Kind::kBackward));
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  Action next_forward(Side side) { return {stages_[side], Kind::kForward, forwards_[side]++}; }
  Action next_backward(Side side, Kind kind) { return {stages_[side], kind, backwards_[side]++}; }

  // Leaves out a microbatch that the step does not have.
  void add(const Action& action) {
    if (action.microbatch < size_.num_microbatches) steps_.emplace_back(action);
  }

  void settle(std::vector<Action>::iterator owed) {
    add(*owed);
    owed_.erase(owed);
  }

  PipelineSize size_;
  std::array<int, 2> stages_;
  std::array<int, 2> forwards_{}, backwards_{};  // of each side, so far
  std::vector<Action> owed_;                     // weight gradients
  std::vector<Step> steps_;
};

template <typename Body>
void times(int count, Body body) {
  for (int i = 0; i < count; ++i) body();
}

}  // namespace

std::vector<Step> zbv_order(const PipelineSize& size, int rank) {
  const int ranks = size.num_ranks, to_last = ranks - rank;
  // Fewer microbatches than fill the pipeline leave gaps in the order of those that do.
  const int microbatches = std::max(size.num_microbatches, 2 * ranks - 1);
  VOrder order(size, rank);
  const auto whole_backward = [&order](Side side) {
    order.input_gradient(side);
    order.weight_gradient(side);
  };
  times(2 * to_last - 1, [&] { order.forward(kDown); });
  times(rank, [&] {
    order.forward(kUp);
    order.forward(kDown);
  });
  times(to_last, [&] {
    order.forward(kUp);
    whole_backward(kUp);
  });
  times(microbatches - ranks, [&] {
    order.forward(kDown);
    whole_backward(kDown);
    order.forward(kUp);
    whole_backward(kUp);
  });
  times(rank, [&] {
    order.input_gradient(kDown);
    order.input_gradient(kUp);
  });
  times(to_last, [&] {
    order.input_gradient(kDown);
    order.weight_gradient(kDown);
  });
  while (order.weight_gradient(kUp)) continue;
  while (order.weight_gradient(kDown)) continue;
  return order.take();
}

std::vector<Step> dual_pipe_v_order(const PipelineSize& size, int rank) {
  const int after = size.num_ranks - 1 - rank;  // ranks after this one
  VOrder order(size, rank);
  times(2 * after, [&] { order.forward(kDown); });
  times(rank + 1, [&] {
    order.forward(kDown);
    order.forward(kUp);
  });
  times(after, [&] {
    order.input_gradient(kUp);
    order.weight_gradient();
    order.forward(kUp);
  });
  for (int i = 0; i < size.num_microbatches - 2 * size.num_ranks + rank + 1; ++i) {
    if (i == 0 && after == 0) {  // apart, the last rank's first backward ends earlier
      order.forward(kDown);
      order.backward(kUp);
    } else {
      order.overlapped(kDown);
    }
    order.overlapped(kUp);
  }
  times(after, [&] {
    order.backward(kUp);
    order.overlapped(kUp);
  });
  // The second half of the last backwards is in halves, so that weight gradients fill the end.
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const Side side = i % 2 == 0 ? kUp : kDown;
    i > rank ? order.input_gradient(side) : order.backward(side);
  }
  times(after, [&] {
    order.weight_gradient();
    order.input_gradient(kDown);
  });
  times(rank + 1, [&] { order.weight_gradient(); });
  return order.take();
}

}  // namespace titan::pipeline
