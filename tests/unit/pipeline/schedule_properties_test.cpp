#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "pipeline/check_schedule.h"
#include "pipeline/schedule_kinds.h"
#include "pipeline/timeline.h"
#include "pipeline/with_communication.h"
#include "tests/unit/pipeline/second_simulation.h"

namespace titan::pipeline {
namespace {

std::string name_of_case(const ScheduleKind& kind, const PipelineSize& size) {
  return std::string(kind.name) + " ranks " + std::to_string(size.num_ranks) + " stages " +
         std::to_string(size.stages_per_rank) + " microbatches " + std::to_string(size.num_microbatches);
}

bool has_schedule(const ScheduleKind& kind, const PipelineSize& size) {
  try {
    check_size(kind, size);
    return kind.order_of_rank != nullptr;
  } catch (const ConfigError&) {
    return false;
  }
}

// Calls `body` for every kind of schedule and size that it has: all up to 8 ranks, 4 stages per rank and 24
// microbatches, and some up to 32 ranks and 99 microbatches.
int for_each_case(const std::function<void(const ScheduleKind&, const PipelineSize&)>& body) {
  int cases = 0;
  const auto try_case = [&](const ScheduleKind& kind, const PipelineSize& size) {
    if (!has_schedule(kind, size)) return;
    body(kind, size);
    ++cases;
  };
  std::mt19937 random(3);
  const auto up_to = [&random](int most) { return 1 + static_cast<int>(random() % most); };
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int stages = 1; stages <= 4; ++stages)
        for (int microbatches = 1; microbatches <= 24; ++microbatches) try_case(kind, {ranks, stages, microbatches});
    for (int i = 0; i < 24; ++i) try_case(kind, {up_to(32), kind.is_single_stage ? 1 : 2, up_to(99)});
  }
  return cases;
}

TEST(PipelineProperties, EveryScheduleIsWhole) {
  const int cases = for_each_case([](const ScheduleKind& kind, const PipelineSize& size) {
    SCOPED_TRACE(name_of_case(kind, size));
    const PipelineSchedule schedule = make_schedule(kind, size);
    ASSERT_EQ(find_wrong_computation(schedule), std::nullopt);
    EXPECT_TRUE(test::run_events(schedule, 1, 1, 1).is_complete);
    const PipelineSchedule lowered = with_communication(schedule);
    const ScheduleCheck check = check_schedule(lowered);
    EXPECT_EQ(check.fault, std::nullopt);
    EXPECT_EQ(check.fault_if_sends_wait, std::nullopt);
  });
  EXPECT_GE(cases, 2000);
}

// Costs are small integers, so that all sums are exact.
TEST(PipelineProperties, TimesAndMemoryAreThoseOfASecondSimulation) {
  std::mt19937 random(7);
  for_each_case([&random](const ScheduleKind& kind, const PipelineSize& size) {
    SCOPED_TRACE(name_of_case(kind, size));
    const auto cost = [&random] { return static_cast<double>(1 + random() % 5); };
    const Costs costs{.forward = cost(), .input_gradient = cost(), .weight_gradient = cost()};
    const PipelineSchedule schedule = make_schedule(kind, size);
    const Timeline timeline = simulate(schedule, costs);
    const auto second = test::run_events(schedule, costs.forward, costs.input_gradient, costs.weight_gradient);
    EXPECT_EQ(timeline.makespan, second.makespan);
    EXPECT_EQ(timeline.bubble, 1 - second.busy / (second.makespan * size.num_ranks));
    const auto memory = memory_in_flight(schedule);
    for (int rank = 0; rank < size.num_ranks; ++rank) {
      EXPECT_EQ(timeline.ranks[rank].idle_between, second.idle_between[rank]);
      EXPECT_EQ(memory[rank].activations, second.activations[rank]);
      EXPECT_EQ(memory[rank].between_halves, second.between_halves[rank]);
    }
    // Messages and gathers take no time.
    EXPECT_EQ(simulate(with_communication(schedule), costs).makespan, timeline.makespan);
  });
}

TEST(PipelineProperties, MessagesComeToTheirEndInAnyTurnOfRanks) {
  std::mt19937 random(11);
  for_each_case([&random](const ScheduleKind& kind, const PipelineSize& size) {
    if (random() % 8 != 0) return;  // for time
    SCOPED_TRACE(name_of_case(kind, size));
    const PipelineSchedule lowered = with_communication(make_schedule(kind, size));
    EXPECT_TRUE(test::run_queues(lowered, /*sends_wait=*/false, random));
    EXPECT_TRUE(test::run_queues(lowered, /*sends_wait=*/true, random));
  });
}

double bubble(const char* name, const PipelineSize& size, const Costs& costs = {}) {
  return simulate(make_schedule(find_schedule_kind(name), size), costs).bubble;
}

// Two roundings of numbers below 1: of a quotient and of its difference from 1.
constexpr double kRounding = 4e-16;

TEST(PipelineProperties, BubblesAreThoseOfThePapers) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int microbatches = ranks; microbatches <= 40; ++microbatches) {
      const double filled = microbatches + ranks - 1;
      EXPECT_NEAR(bubble("1F1B", {ranks, 1, microbatches}), (ranks - 1) / filled, kRounding);
      EXPECT_NEAR(bubble("GPipe", {ranks, 1, microbatches}), (ranks - 1) / filled, kRounding);
      if (microbatches % ranks != 0) continue;
      for (int stages = 2; stages <= 4; ++stages) {
        const double wanted = (ranks - 1.0) / (stages * microbatches + ranks - 1);
        EXPECT_NEAR(bubble("Interleaved1F1B", {ranks, stages, microbatches}), wanted, kRounding);
        EXPECT_NEAR(bubble("LoopedBFS", {ranks, stages, microbatches}), wanted, kRounding);
      }
    }
}

// ZB-V: a rank that has begun never waits, so that only the ranks' different beginnings are left of the bubble.
TEST(PipelineProperties, ZbvNeverWaitsBetween) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int microbatches = 2 * ranks - 1; microbatches <= 30; ++microbatches) {
      const Timeline timeline =
          simulate(make_schedule(find_schedule_kind("ZBVZeroBubble"), {ranks, 2, microbatches}), {});
      for (const RankTimeline& rank : timeline.ranks) EXPECT_EQ(rank.idle_between, 0) << ranks << " " << microbatches;
      EXPECT_EQ(timeline.makespan, 6 * microbatches + ranks - 1);
    }
}

// The memory of the papers: GPipe keeps every microbatch, 1F1B as many as there are stages to the last.
TEST(PipelineProperties, MemoryIsThatOfThePapers) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const auto gpipe = memory_in_flight(make_schedule(find_schedule_kind("GPipe"), {ranks, 1, 12}));
    const auto alternating = memory_in_flight(make_schedule(find_schedule_kind("1F1B"), {ranks, 1, 12}));
    const auto zbv = memory_in_flight(make_schedule(find_schedule_kind("ZBVZeroBubble"), {ranks, 2, 16}));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(gpipe[rank].activations, 12);
      EXPECT_EQ(alternating[rank].activations, ranks - rank);
      EXPECT_EQ(alternating[rank].between_halves, 0);
      EXPECT_LE(zbv[rank].activations, 2 * ranks);  // of half the layers each: as much as rank 0 of 1F1B
    }
  }
}

// One overlapped pair begins when both inputs are there, and takes the time of both.
TEST(PipelineProperties, APairTakesTheTimeOfBoth) {
  const Costs costs{.forward = 2, .input_gradient = 3, .weight_gradient = 4};
  EXPECT_EQ(costs.of(Step(Action{0, Kind::kForward, 0}, Action{3, Kind::kBackward, 0})), 9);
  EXPECT_EQ(costs.of(Action{0, Kind::kSendForward, 0}), 0);
}

// Runs the orders with sends that wait for their receives. Returns true if all ranks come to their end, and no forward
// ran before its input was there.
bool ends_if_sends_wait(const PipelineSchedule& schedule) {
  std::vector<std::size_t> next(schedule.orders.size());
  std::set<std::pair<int, int>> results;  // stage and microbatch
  const auto action_of = [&](int rank) {
    const auto& order = schedule.orders[rank];
    return next[rank] < order.size() ? std::optional(order[next[rank]].first()) : std::nullopt;
  };
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      const auto action = action_of(rank);
      if (!action || action->kind == Kind::kReceiveForward) continue;
      if (action->kind == Kind::kForward) {
        if (action->stage > 0 && !results.contains({action->stage - 1, action->microbatch})) return false;
        results.insert({action->stage, action->microbatch});
      } else {
        const int to = schedule.rank_of_stage[action->stage + 1];
        if (action_of(to) != Action{action->stage + 1, Kind::kReceiveForward, action->microbatch}) continue;
        ++next[to];
      }
      ++next[rank];
      any = true;
    }
  }
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    if (action_of(rank)) return false;
  return std::ssize(results) == schedule.num_stages() * schedule.num_microbatches;
}

TEST(PipelineProperties, ForwardsAloneEndForAnyNumberOfMicrobatches) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (int stages = 1; stages <= 4; ++stages)
      for (const StageStyle style : {StageStyle::kLoop, StageStyle::kV})
        for (int microbatches = 1; microbatches <= 3 * ranks + 1; ++microbatches) {
          if (style == StageStyle::kV && stages != 2) continue;
          const auto schedule = forwards_alone(place_stages(ranks, ranks * stages, style), microbatches);
          EXPECT_TRUE(ends_if_sends_wait(schedule)) << ranks << " " << stages << " " << microbatches;
        }
}

}  // namespace
}  // namespace titan::pipeline
