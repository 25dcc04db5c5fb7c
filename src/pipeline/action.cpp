#include "pipeline/action.h"

namespace titan::pipeline {

std::string_view name_of(Kind kind) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return kNames.at(static_cast<std::size_t>(kind));
}

bool computes(Kind kind) { return kind <= Kind::kWeightGradient; }

bool makes_input_gradient(Kind kind) { return kind == Kind::kBackward || kind == Kind::kInputGradient; }

bool makes_weight_gradients(Kind kind) { return kind == Kind::kBackward || kind == Kind::kWeightGradient; }

bool sends(Kind kind) { return kind == Kind::kSendForward || kind == Kind::kSendBackward; }

bool receives(Kind kind) { return kind == Kind::kReceiveForward || kind == Kind::kReceiveBackward; }

std::string to_text(const Action& action) {
  std::string text = std::to_string(action.stage);
  text += name_of(action.kind);
  if (action.microbatch != kNoMicrobatch) text += std::to_string(action.microbatch);
  return text;
}

std::string to_text(const Step& step) {
  const auto actions = step.actions();
  return step.is_pair() ? "(" + to_text(actions[0]) + ";" + to_text(actions[1]) + ")OVERLAP_F_B" : to_text(actions[0]);
}

}  // namespace titan::pipeline
