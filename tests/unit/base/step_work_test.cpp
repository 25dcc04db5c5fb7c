#include "base/process/step_work.h"

#include <gtest/gtest.h>

namespace titan {
namespace {

// Three layers and two microbatches make 18 parts: one for each forward, two for each backward.
TEST(StepWork, SaysWhereAStepIsAndHowMuchOfItIsDone) {
  StepWork work;
  const auto expect = [&](int parts, const std::string& text) {
    EXPECT_DOUBLE_EQ(work.get().share(), parts / 18.0) << text;
    EXPECT_EQ(work.get().text(), text);
  };
  work.set_layers(3);
  for (int step = 1; step <= 2; ++step) {
    work.begin_step(2);
    expect(0, "");
    work.begin_forward_of_layer();
    expect(0, "forward of layer 1 of 3, microbatch 1 of 2");
    work.begin_forward_of_layer();
    expect(1, "forward of layer 2 of 3, microbatch 1 of 2");
    work.begin_forward_of_layer();
    expect(2, "forward of layer 3 of 3, microbatch 1 of 2");
    work.begin_backward();
    expect(3, "backward of layer 3 of 3, microbatch 1 of 2");
    work.end_backward_of_layer();
    expect(5, "backward of layer 2 of 3, microbatch 1 of 2");
    work.end_backward_of_layer();
    work.end_backward_of_layer();
    expect(9, "backward of layer 1 of 3, microbatch 1 of 2");
    work.begin_forward_of_layer();
    expect(9, "forward of layer 1 of 3, microbatch 2 of 2");
    for (int layer = 0; layer < 2; ++layer) work.begin_forward_of_layer();
    work.begin_backward();
    expect(12, "backward of layer 3 of 3, microbatch 2 of 2");
    for (int layer = 0; layer < 3; ++layer) work.end_backward_of_layer();
    expect(18, "backward of layer 1 of 3, microbatch 2 of 2");
  }
}

TEST(StepWork, OfAPipelineIsItsStageAndMicrobatch) {
  StepWork work;
  work.set_layers(3);
  work.begin_step(4);
  work.begin_forward_of_layer();
  EXPECT_EQ(work.get().text(), "forward of layer 1 of 3, microbatch 1 of 4");
  work.begin_in_pipeline({2, /*is_forward=*/true, /*has_ended=*/false, 3});
  EXPECT_EQ(work.get().text(), "forward of stage 2, microbatch 3");
  work.begin_in_pipeline({.stage = 0, .is_forward = false, .microbatch = 1});
  EXPECT_EQ(work.get().text(), "backward of stage 0, microbatch 1");
  for (const Phase phase : {Phase::kStep, Phase::kValidation})
    EXPECT_EQ(work.of_pipeline(phase), "backward of stage 0, microbatch 1");
  EXPECT_EQ(work.of_pipeline(Phase::kCheckpoint), "");
  // The counts of layers are of one order of microbatches after the other, which a pipeline does not have.
  work.end_pipeline();
  EXPECT_EQ(work.get().text(), "");
  EXPECT_EQ(work.of_pipeline(Phase::kStep), "");
  work.begin_step(4);
  work.begin_forward_of_layer();
  EXPECT_EQ(work.get().text(), "forward of layer 1 of 3, microbatch 1 of 4");
}

TEST(StepWork, OfOneMicrobatchAndOfAModelWithoutLayers) {
  StepWork work;
  work.begin_step(1);
  work.begin_backward();
  EXPECT_EQ(work.get().text(), "");
  EXPECT_EQ(work.get().share(), 0);
  work.set_layers(6);
  work.begin_step(1);
  work.begin_forward_of_layer();
  EXPECT_EQ(work.get().text(), "forward of layer 1 of 6");
}

}  // namespace
}  // namespace titan
