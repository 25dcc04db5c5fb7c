// The actions of a pipeline schedule, and their text. No torch.
#pragma once

#include <array>
#include <compare>
#include <span>
#include <string>
#include <string_view>

namespace titan::pipeline {

// Kinds of actions. PyTorch's torch.distributed.pipelining has the same, with the names of name_of().
enum class Kind {
  kForward,
  kBackward,        // both gradients at once
  kInputGradient,   // the half of a backward that the stage before waits for
  kWeightGradient,  // the other half
  kSendForward,     // a stage's output to the rank of the next stage
  kReceiveForward,
  kSendBackward,  // the gradient of a stage's input to the rank of the stage before
  kReceiveBackward,
  kUnshard,  // gathers the stage's sharded parameters
  kReshard,  // frees what kUnshard has gathered
  kReduceGradients,
};

// Stands for the microbatch of actions that belong to a whole stage (kUnshard, kReshard, kReduceGradients).
inline constexpr int kNoMicrobatch = -1;

struct Action {
  int stage = 0;  // of the whole model, from 0
  Kind kind = Kind::kForward;
  int microbatch = kNoMicrobatch;  // of the step, from 0

  friend auto operator<=>(const Action&, const Action&) = default;
};

// Returns "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD" or "REDUCE_GRAD".
std::string_view name_of(Kind kind);

// True for kForward, kBackward, kInputGradient and kWeightGradient.
bool computes(Kind kind);

// True for kBackward and kInputGradient: they make the gradient that the stage before waits for.
bool makes_input_gradient(Kind kind);

// True for kBackward and kWeightGradient: they make the gradients of weights.
bool makes_weight_gradients(Kind kind);

// True for kSendForward and kSendBackward.
bool sends(Kind kind);

// True for kReceiveForward and kReceiveBackward.
bool receives(Kind kind);

// One place in a rank's order: an action, or a pair that overlaps, of a forward and a full backward. A pair starts when
// both have their inputs, and its results are sent when both are done.
class Step {
 public:
  Step(const Action& action) : actions_{action} {}  // NOLINT(google-explicit-constructor): a step is an action
  Step(const Action& forward, const Action& backward) : actions_{forward, backward}, size_(2) {}

  std::span<const Action> actions() const { return {actions_.data(), size_}; }
  bool is_pair() const { return size_ == 2; }
  const Action& first() const { return actions_[0]; }

  friend bool operator==(const Step&, const Step&) = default;

 private:
  std::array<Action, 2> actions_;
  std::size_t size_ = 1;
};

// Returns "2F0", "2SEND_F0" or "2UNSHARD".
std::string to_text(const Action& action);

// Returns the text of the action, or "(0F3;3B1)OVERLAP_F_B" for a pair, as PyTorch writes it.
std::string to_text(const Step& step);

}  // namespace titan::pipeline
