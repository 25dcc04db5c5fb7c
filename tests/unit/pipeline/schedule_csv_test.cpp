#include "pipeline/schedule_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "pipeline/schedule_kinds.h"
#include "tests/support/message_of.h"

namespace titan::pipeline {
namespace {

using testing::HasSubstr;

TEST(ScheduleCsv, GoesThereAndBack) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (!kind.order_of_rank) continue;
    const PipelineSchedule schedule = make_schedule(kind, {3, kind.is_single_stage ? 1 : 2, 6});
    const PipelineSchedule read = read_schedule_csv(schedule_csv(schedule), "file.csv");
    EXPECT_EQ(read.orders, schedule.orders) << kind.name;
    EXPECT_EQ(read.rank_of_stage, schedule.rank_of_stage) << kind.name;
    EXPECT_EQ(read.num_microbatches, schedule.num_microbatches) << kind.name;
  }
}

TEST(ScheduleCsv, EmptyCellsAreIdle) {
  const PipelineSchedule schedule = read_schedule_csv("0F0,,, 0B0\r\n,1F0,1B0,\r\n", "file.csv");
  EXPECT_EQ(schedule_csv(schedule), "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(schedule.num_microbatches, 1);
}

std::string csv_refusal(const char* text) {
  return titan::test::message_of<DataError>([text] { read_schedule_csv(text, "file.csv"); });
}

TEST(ScheduleCsv, RefusesWhatIsNotComputation) {
  EXPECT_THAT(csv_refusal("0F0,0SEND_F0\n"), HasSubstr("file.csv: line 1, cell 2: 0SEND_F0 is not computation"));
  EXPECT_THAT(csv_refusal("0F0\n,1UNSHARD\n"), HasSubstr("line 2, cell 2: 1UNSHARD is not computation"));
  for (const char* cell : {"F0", "0F", "0X0", "0F0x", "-1F0", "0F-1", "0f0", "123456789F0", "(0F0;1B0)",
                           "(0B0;1F0)OVERLAP_F_B", "(0F0)OVERLAP_F_B"})
    EXPECT_THAT(csv_refusal(cell), HasSubstr(std::string("as in 2F0; found \"") + cell + "\"")) << cell;
  EXPECT_THAT(csv_refusal(",,\n"), HasSubstr("there is no action in it"));
}

TEST(ScheduleCsv, AStageHasOneRank) {
  EXPECT_THAT(csv_refusal("0F0,0B0\n1F0,0F1\n"),
              HasSubstr("line 2, cell 2 (0F1): stage 0 is already in line 1, cell 1 (0F0)"));
}

TEST(ScheduleCsv, ASlipInACellIsNamedWithTheCell) {
  EXPECT_THAT(csv_refusal("0F0,0B0\n2F0,2B0\n"),
              HasSubstr("file.csv: line 2, cell 1 (2F0): stage 2 occurs, and stage 1 does not"));
  EXPECT_THAT(csv_refusal("0F0,,0F11,0B0,0B1\n"),
              HasSubstr("line 1, cell 3 (0F11): microbatch 11 occurs, and microbatch 2 does not"));
  EXPECT_THAT(csv_refusal("0F0,0F1,(0F1;0B0)OVERLAP_F_B\n"),
              HasSubstr("line 1, cell 3 (0F1): it is already in line 1, cell 2; an action occurs once"));
}

TEST(ScheduleCsv, IsComparedWithTheRun) {
  const auto expected = make_schedule(find_schedule_kind("ZBVZeroBubble"), {2, 2, 4});
  const auto fault = [&expected](const char* name, const PipelineSize& size) {
    const auto other = make_schedule(find_schedule_kind(name), size);
    return titan::test::message_of<DataError>([&] { check_same_pipeline(other, expected, "file.csv"); });
  };
  EXPECT_NO_THROW(check_same_pipeline(expected, expected, "file.csv"));
  EXPECT_EQ(fault("1F1B", {3, 1, 4}),
            "file.csv: expected 2 ranks, a line each (parallelism.pipeline_parallel_degree), found 3");
  EXPECT_EQ(fault("LoopedBFS", {2, 3, 4}),
            "file.csv: expected 4 stages (by parallelism.pipeline_parallel_schedule and "
            "parallelism.pipeline_parallel_layers_per_stage), found 6");
  EXPECT_EQ(fault("LoopedBFS", {2, 2, 5}),
            "file.csv: expected 4 microbatches (training.local_batch_size / "
            "parallelism.pipeline_parallel_microbatch_size), found 5");
  EXPECT_EQ(fault("LoopedBFS", {2, 2, 4}),
            "file.csv: stage 2 is on rank 0 (line 1), and belongs to rank 1, as parallelism.pipeline_parallel_schedule "
            "says: ZBVZeroBubble and DualPipeV lie in a V, the others in a loop");
  const auto other = make_schedule(find_schedule_kind("1F1B"), {3, 1, 4});
  const auto in_other_words = [&] { check_same_pipeline(other, expected, "file.csv", {.ranks = "--ranks"}); };
  EXPECT_EQ(titan::test::message_of<DataError>(in_other_words),
            "file.csv: expected 2 ranks, a line each (--ranks), found 3");
}

}  // namespace
}  // namespace titan::pipeline
