#include "parallel/pipeline/schedule_runner.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "nn/ops/kept_ops.h"
#include "nn/ops/weight_gradients.h"
#include "pipeline/schedule_kinds.h"
#include "pipeline/with_communication.h"

namespace titan::parallel {
namespace {

constexpr int kMicrobatches = 4;
constexpr std::int64_t kWidth = 3;

// Two stages of one matrix each, on one rank: y = tanh(x W0^T), loss = sum((y W1^T)^2).
class TwoStages : public PipelineStages {
 public:
  TwoStages() {
    at::manual_seed(1);
    inputs = at::randn({kMicrobatches, 2, kWidth}, at::kDouble);
    for (auto& weight : weights) weight = at::randn({kWidth, kWidth}, at::kDouble).requires_grad_();
  }

  at::Tensor forward(int stage, int microbatch, const at::Tensor& input) override {
    log.push_back(std::to_string(stage) + "F" + std::to_string(microbatch));
    EXPECT_EQ(input.defined(), stage > 0);
    if (stage == 0) return nn::apply_linear(inputs[microbatch], weights[0]).tanh();
    EXPECT_EQ(input.requires_grad(), at::GradMode::is_enabled());
    const auto loss = nn::apply_linear(input, weights[1]).square().sum();
    losses += loss.detach();
    return loss;
  }
  at::Tensor empty_output(int /*microbatch*/) override {
    ADD_FAILURE() << "stages of one rank exchange no messages";
    return {};
  }
  void unshard(int stage) override { log.push_back("unshard " + std::to_string(stage)); }
  void reshard(int stage) override { log.push_back("reshard " + std::to_string(stage)); }
  void keep_gradients(int stage) override { log.push_back("keep " + std::to_string(stage)); }
  void reduce_gradients(int stage) override { log.push_back("reduce " + std::to_string(stage)); }

  std::int64_t logged(const std::string& text) const { return std::ranges::count(log, text); }

  at::Tensor inputs;
  std::array<at::Tensor, 2> weights;
  at::Tensor losses = at::zeros({}, at::kDouble);
  std::vector<std::string> log;
};

// Runs both stages without a pipeline. Returns the gradients of the weights.
std::vector<at::Tensor> expected_gradients(const TwoStages& stages) {
  auto loss = at::zeros({}, at::kDouble);
  for (int i = 0; i < kMicrobatches; ++i)
    loss = loss + at::linear(at::linear(stages.inputs[i], stages.weights[0]).tanh(), stages.weights[1]).square().sum();
  return torch::autograd::grad({loss}, {stages.weights[0], stages.weights[1]});
}

pipeline::PipelineSchedule schedule_of(const char* name) {
  const pipeline::PipelineSize size{.num_ranks = 1, .stages_per_rank = 2, .num_microbatches = kMicrobatches};
  return pipeline::with_communication(pipeline::make_schedule(pipeline::find_schedule_kind(name), size));
}

dist::ProcessGroup one_rank() { return {"pp", {0}, 0, {}, {}}; }

class ScheduleRunnerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { nn::use_own_linear_node(true); }
  void TearDown() override { nn::use_own_linear_node(false); }
};

TEST_P(ScheduleRunnerTest, GivesTheGradientsOfTheWholeModel) {
  TwoStages stages;
  const auto expected = expected_gradients(stages);
  auto group = one_rank();
  ScheduleRunner(schedule_of(GetParam()), group, stages).run();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(stages.weights[i].grad(), expected[i], 1e-12, 1e-12));
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(stages.logged("reduce " + std::to_string(stage)), 1);
    EXPECT_EQ(stages.logged("unshard " + std::to_string(stage)), stages.logged("reshard " + std::to_string(stage)));
  }
}

TEST_P(ScheduleRunnerTest, RunsForwardAloneForAnyNumberOfMicrobatches) {
  TwoStages stages;
  auto group = one_rank();
  const at::NoGradGuard no_grad;
  ScheduleRunner(schedule_of(GetParam()), group, stages).run_forward(3);
  EXPECT_EQ(stages.log, (std::vector<std::string>{"0F0", "1F0", "0F1", "1F1", "0F2", "1F2"}));
  EXPECT_FALSE(stages.weights[0].grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleRunnerTest,
                         ::testing::Values("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"));

// Only the halves that need the weights are left for later.
TEST(ScheduleRunner, KeepsGradientsAfterEachWeightGradient) {
  nn::use_own_linear_node(true);
  TwoStages stages;
  auto group = one_rank();
  ScheduleRunner(schedule_of("ZBVZeroBubble"), group, stages).run();
  nn::use_own_linear_node(false);
  EXPECT_EQ(stages.logged("keep 0"), kMicrobatches);
  EXPECT_EQ(stages.logged("keep 1"), kMicrobatches);
}

TEST(ScheduleRunner, RefusesAScheduleOfOtherRanks) {
  TwoStages stages;
  auto group = one_rank();
  const pipeline::PipelineSize two{.num_ranks = 2, .stages_per_rank = 1, .num_microbatches = 2};
  const auto schedule =
      pipeline::with_communication(pipeline::make_schedule(pipeline::find_schedule_kind("GPipe"), two));
  EXPECT_THROW(ScheduleRunner(schedule, group, stages), InternalError);
}

}  // namespace
}  // namespace titan::parallel
