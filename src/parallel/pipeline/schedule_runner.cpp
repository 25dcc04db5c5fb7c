#include "parallel/pipeline/schedule_runner.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/process/step_work.h"
#include "pipeline/with_communication.h"
#include "trace/named_range.h"

namespace titan::parallel {

using pipeline::Action;
using pipeline::Kind;

namespace {

// Messages of a stage that a rank keeps until they have arrived: two in each direction.
constexpr std::size_t kMostSentPerStage = 4;

bool is_of_forward(Kind kind) {
  return kind == Kind::kForward || kind == Kind::kSendForward || kind == Kind::kReceiveForward;
}

}  // namespace

ScheduleRunner::ScheduleRunner(pipeline::PipelineSchedule schedule, dist::ProcessGroup& group, PipelineStages& stages)
    : schedule_(std::move(schedule)), group_(group), stages_(stages) {
  TITAN_CHECK(schedule_.num_ranks() == group_.size(), "a schedule of " + std::to_string(schedule_.num_ranks()) +
                                                          " ranks for the " + std::to_string(group_.size()) + " of '" +
                                                          group_.name() + "'");
}

void ScheduleRunner::run() { run(schedule_); }

void ScheduleRunner::run_forward(int num_microbatches) {
  run(pipeline::forwards_alone(schedule_.rank_of_stage, num_microbatches));
}

void ScheduleRunner::run(const pipeline::PipelineSchedule& schedule) {
  in_flight_.clear();
  for (const pipeline::Step& step : schedule.orders[static_cast<std::size_t>(group_.rank())])
    for (const Action& action : step.actions()) act(action);
  finish();
}

void ScheduleRunner::finish() {
  for (auto& [tensor, work] : sent_) work.wait();
  sent_.clear();
  in_flight_.clear();
  step_work().end_pipeline();
}

// A schedule without a fault ends if each send waits for its receive, so it also ends if a later action waits for it.
void ScheduleRunner::send(const at::Tensor& tensor, int to) {
  sent_.emplace_back(tensor, group_.send(tensor, to));
  if (sent_.size() <= kMostSentPerStage * pipeline::stages_of_rank(schedule_, group_.rank()).size()) return;
  sent_.front().second.wait();
  sent_.pop_front();
}

int ScheduleRunner::other_rank_of(int stage) const {
  const int rank = schedule_.rank_of_stage[static_cast<std::size_t>(stage)];
  return rank == group_.rank() ? -1 : rank;
}

// Says for reports what this rank does, also while it waits for it.
void ScheduleRunner::begin(const Action& action) {
  step_work().begin_in_pipeline({.stage = static_cast<std::int16_t>(action.stage),
                                 .is_forward = is_of_forward(action.kind),
                                 .microbatch = action.microbatch});
}

void ScheduleRunner::act(const Action& action) {
  const NamedRange range([&] { return pipeline::to_text(action); });
  if (action.microbatch != pipeline::kNoMicrobatch) begin(action);
  switch (action.kind) {
    case Kind::kForward:
      return forward(action.stage, action.microbatch);
    case Kind::kBackward:
    case Kind::kInputGradient:
      return backward(action);
    case Kind::kWeightGradient:
      return add_weight_gradients(action.stage, action.microbatch);
    case Kind::kSendForward:
      return send_output(action.stage, action.microbatch);
    case Kind::kReceiveForward:
      return receive_input(action.stage, action.microbatch);
    case Kind::kSendBackward:
      return send_input_grad(action.stage, action.microbatch);
    case Kind::kReceiveBackward:
      return receive_output_grad(action.stage, action.microbatch);
    case Kind::kUnshard:
      return stages_.unshard(action.stage);
    case Kind::kReshard:
      return stages_.reshard(action.stage);
    case Kind::kReduceGradients:
      return stages_.reduce_gradients(action.stage);
  }
}

void ScheduleRunner::receive_input(int stage, int microbatch) {
  InFlight& state = in_flight(stage, microbatch);
  state.input = stages_.empty_output(microbatch);
  state.input_work = group_.receive(state.input, other_rank_of(stage - 1));
}

void ScheduleRunner::forward(int stage, int microbatch) {
  InFlight& state = in_flight(stage, microbatch);
  state.input_work.wait();
  const NamedRange range([] { return "forward"; });
  if (stage > 0 && at::GradMode::is_enabled()) state.input.requires_grad_();
  state.output = stages_.forward(stage, microbatch, state.input);
  const bool hands_on = stage < last_stage() && other_rank_of(stage + 1) < 0;
  if (hands_on) in_flight(stage + 1, microbatch).input = state.output.detach();
  if (at::GradMode::is_enabled()) return;
  state.input.reset();
  if (hands_on) state.output.reset();
}

void ScheduleRunner::send_output(int stage, int microbatch) {
  InFlight& state = in_flight(stage, microbatch);
  send(state.output.detach().contiguous(), other_rank_of(stage + 1));
  if (!at::GradMode::is_enabled()) state.output.reset();
}

void ScheduleRunner::receive_output_grad(int stage, int microbatch) {
  InFlight& state = in_flight(stage, microbatch);
  state.output_grad = stages_.empty_output(microbatch);
  state.output_grad_work = group_.receive(state.output_grad, other_rank_of(stage + 1));
}

void ScheduleRunner::backward(const Action& action) {
  InFlight& state = in_flight(action.stage, action.microbatch);
  state.output_grad_work.wait();
  const NamedRange range([] { return "backward"; });
  {
    std::optional<nn::WeightGradients::Scope> later;
    if (action.kind == Kind::kInputGradient) later.emplace(state.weight_gradients);
    std::vector<at::Tensor> grads;
    if (action.stage < last_stage()) grads.push_back(std::exchange(state.output_grad, at::Tensor()));
    // Nothing before the output is trained if all of the first stage's parameters are frozen.
    if (state.output.requires_grad()) torch::autograd::backward({state.output}, grads);
  }
  state.output.reset();
  if (action.stage == 0) return;
  state.input_grad = state.input.grad();
  state.input.reset();
  if (other_rank_of(action.stage - 1) < 0)
    in_flight(action.stage - 1, action.microbatch).output_grad = std::exchange(state.input_grad, at::Tensor());
}

void ScheduleRunner::send_input_grad(int stage, int microbatch) {
  send(std::exchange(in_flight(stage, microbatch).input_grad, at::Tensor()).contiguous(), other_rank_of(stage - 1));
}

void ScheduleRunner::add_weight_gradients(int stage, int microbatch) {
  const NamedRange range([] { return "backward"; });
  in_flight(stage, microbatch).weight_gradients.run();
  stages_.keep_gradients(stage);
}

}  // namespace titan::parallel
