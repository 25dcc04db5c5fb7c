// Tests where the time of made-up traces went.
#include "profile/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace titan::profile {
namespace {

using Kind = TraceEvent::Kind;
constexpr std::uint64_t kTrain = 1, kAutograd = 2;

TraceEvent range(std::string name, std::int64_t start_ms, std::int64_t end_ms, std::uint64_t thread = kTrain) {
  return {.kind = Kind::kRange,
          .name = std::move(name),
          .thread = thread,
          .start_ns = start_ms * 1'000'000,
          .end_ns = end_ms * 1'000'000};
}

TraceEvent in_background(std::string name, std::int64_t start_ms, std::int64_t end_ms) {
  auto event = range(std::move(name), start_ms, end_ms);
  event.is_async = true;
  return event;
}

TraceEvent op(std::string name, std::int64_t start_ms, std::int64_t end_ms, std::uint64_t correlation = 0,
              std::uint64_t thread = kTrain) {
  auto event = range(std::move(name), start_ms, end_ms, thread);
  event.kind = Kind::kOperator;
  event.correlation = correlation;
  return event;
}

TraceEvent kernel(std::string name, std::int64_t start_ms, std::int64_t end_ms, std::uint64_t launched_by) {
  auto event = op(std::move(name), start_ms, end_ms, launched_by, 0);
  event.kind = Kind::kKernel;
  return event;
}

std::int64_t ms(const StepTimes& times, Part part) { return times.ns(part) / 1'000'000; }
std::int64_t under_way_ms(const StepTimes& times, Part part) { return times.under_way_ns(part) / 1'000'000; }

// A step of 100 ms on a CPU. The all-gather runs from 20 to 50 beside the forward pass, which waits for it from 45 on.
std::vector<TraceEvent> cpu_step() {
  return {range("ProfilerStep#4", 0, 100),
          range("data", 0, 10),
          range("all_reduce over 'world'", 8, 9),
          range("step", 10, 90),
          range("forward", 10, 60),
          range("FSDP::all_gather (layers.1)", 20, 21),
          in_background("gloo:_allgather_base", 20, 50),
          range("layers.0", 21, 45),
          range("FSDP::all_gather_copy_out (layers.1)", 45, 51),
          range("wait for all_gather over 'fsdp'", 45, 50),
          range("backward", 60, 85),
          range("FSDP::post_backward_reduce (layers.1)", 70, 74, kAutograd),
          range("optimizer", 86, 90),
          range("checkpoint", 92, 95),
          range("validation", 95, 99),
          range("forward", 96, 98),
          range("all_gather over 'fsdp'", 96, 97)};
}

TEST(StepTimes, EveryMomentBelongsToOnePart) {
  StepTimes times;
  times.add(cpu_step());
  EXPECT_EQ(times.steps(), 1);
  EXPECT_EQ(times.total_ns(), 100'000'000);
  EXPECT_EQ(ms(times, Part::kData), 9);
  EXPECT_EQ(ms(times, Part::kAllReduce), 1);
  EXPECT_EQ(ms(times, Part::kForward), 50 - 7);
  EXPECT_EQ(ms(times, Part::kAllGather), 7);
  EXPECT_EQ(ms(times, Part::kBackward), 25 - 4);
  EXPECT_EQ(ms(times, Part::kReduceScatter), 4);
  EXPECT_EQ(ms(times, Part::kOptimizer), 4);
  EXPECT_EQ(ms(times, Part::kCheckpoint), 3);
  EXPECT_EQ(ms(times, Part::kValidation), 4);  // with the forward pass and the all-gather inside it
  EXPECT_EQ(ms(times, Part::kOther), 4);       // 85 to 86, 90 to 92, 99 to 100
}

// A rank of a pipeline waits for the stage before inside the forward and inside the backward of a microbatch.
TEST(StepTimes, TellsTheWaitsOfAPipelineFromItsWork) {
  StepTimes times;
  times.add({range("ProfilerStep#4", 0, 100), range("0F0", 0, 40),
             range("wait for receive from rank 0 over 'pp'", 0, 15), range("forward", 15, 40),
             range("0SEND_F0", 40, 42), range("send to rank 1 over 'pp'", 41, 42), range("0B0", 42, 100),
             range("wait for receive from rank 1 over 'pp'", 42, 50), range("backward", 50, 100)});
  EXPECT_EQ(ms(times, Part::kForward), 25);
  EXPECT_EQ(ms(times, Part::kBackward), 50);
  EXPECT_EQ(ms(times, Part::kMessages), 15 + 1 + 8);
  EXPECT_EQ(ms(times, Part::kOther), 1);
  EXPECT_EQ(part_of("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"), Part::kMessages);
}

TEST(StepTimes, SaysWhatOfACollectiveWasHidden) {
  StepTimes times;
  times.add(cpu_step());
  EXPECT_EQ(under_way_ms(times, Part::kAllGather), 31);
  EXPECT_EQ(under_way_ms(times, Part::kReduceScatter), 4);
}

TEST(StepTimes, StepsOfSeveralTracesAddUp) {
  StepTimes times;
  times.add(cpu_step());
  times.add(cpu_step());
  times.add({op("aten::add", 0, 1)});  // no step at all
  EXPECT_EQ(times.steps(), 2);
  EXPECT_EQ(ms(times, Part::kCheckpoint), 6);
  EXPECT_EQ(times.total_ns(), 200'000'000);
}

TEST(StepTimes, WhatLiesOutsideOfStepsDoesNotCount) {
  StepTimes times;
  times.add({range("forward", 0, 20), range("ProfilerStep#1", 10, 30), range("optimizer", 25, 50)});
  EXPECT_EQ(ms(times, Part::kForward), 10);
  EXPECT_EQ(ms(times, Part::kOptimizer), 5);
  EXPECT_EQ(times.total_ns(), 20'000'000);
}

TEST(StepTimes, OperatorsCountWithoutThoseInsideThem) {
  StepTimes times;
  times.add({range("ProfilerStep#1", 0, 100), op("aten::linear", 0, 10), op("aten::mm", 2, 8), op("aten::mm", 20, 24),
             op("aten::mm", 3, 5, 0, kAutograd)});
  const auto list = times.operators();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].name, "aten::mm");
  EXPECT_EQ(list[0].calls, 3);
  EXPECT_EQ(list[0].self_ns, 12'000'000);
  EXPECT_EQ(list[1].self_ns, 4'000'000);
}

// The host is done with its step at 20; the device computes from 5 to 60.
TEST(StepTimes, WithKernelsTheDeviceCounts) {
  StepTimes times;
  times.add({range("ProfilerStep#1", 0, 20), range("forward", 0, 8), op("aten::mm", 1, 2, 7),
             range("backward", 8, 16, kTrain), op("aten::mm", 9, 10, 8, kAutograd),
             range("FSDP::all_gather (layers.1)", 2, 3), op("aten::_foreach_copy_", 2, 3, 9), kernel("gemm", 5, 25, 7),
             kernel("copy", 25, 26, 9), kernel("ncclDevKernel_AllGather_RING_LL", 20, 35, 0),
             kernel("gemm", 40, 60, 8)});
  EXPECT_EQ(times.total_ns(), 60'000'000);
  EXPECT_EQ(ms(times, Part::kForward), 20);
  EXPECT_EQ(ms(times, Part::kAllGather), 10);
  EXPECT_EQ(under_way_ms(times, Part::kAllGather), 15);
  EXPECT_EQ(ms(times, Part::kBackward), 20);
  EXPECT_EQ(ms(times, Part::kDeviceIdle), 10);
  EXPECT_EQ(times.operators().front().name, "gemm");
}

TEST(StepTimes, LinesSayPartsOfAStepAndTheLongestOperators) {
  StepTimes times;
  EXPECT_TRUE(times.lines(3).empty());
  auto events = cpu_step();
  events.push_back(op("aten::mm", 21, 41));
  events.push_back(op("aten::add", 41, 42));
  times.add(events);
  times.add(events);
  const auto lines = times.lines(1);
  EXPECT_EQ(lines.front(), "where the time of 2 profiled steps went, 100.00 ms each:");
  EXPECT_THAT(lines, testing::Contains("  forward             43.00 ms  43.0%"));
  EXPECT_THAT(lines, testing::Contains("  all-gather           7.00 ms   7.0%   not hidden, of 31.00 ms under way"));
  EXPECT_EQ(lines.back(), "  longest operators: aten::mm 20.00 ms");
}

TEST(StepTimes, BackwardPassesWrittenInCppHaveShortNames) {
  StepTimes times;
  times.add({range("ProfilerStep#1", 0, 10),
             op("torch::autograd::CppNode<titan::nn::(anonymous namespace)::Recompute>", 0, 5)});
  EXPECT_EQ(times.lines(1).back(), "  longest operators: Recompute's backward 5.00 ms");
}

}  // namespace
}  // namespace titan::profile
