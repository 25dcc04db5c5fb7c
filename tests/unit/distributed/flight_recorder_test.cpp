#include "distributed/flight/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "distributed/flight/dump.h"
#include "tests/support/count_allocations.h"
#include "tests/support/hand_clock.h"
#include "trace/operation.h"

namespace titan::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CollectiveTicket start(FlightRecorder& recorder, int group, const char* kind = "all_reduce") {
  return recorder.start(group, kind, 4, 8, at::kBFloat16);
}

TEST(FlightRecorder, KeepsWhatWasStartedAndHowFarItIs) {
  PhaseLog phases;
  phases.set_step(12);
  phases.enter(Phase::kData);
  FlightRecorder recorder(phases);
  const int world = recorder.add_group("world", {0, 1}), rows = recorder.add_group("rows", {0, 2});
  const auto first = start(recorder, world);
  start(recorder, rows, "all_gather");
  const auto second = start(recorder, world, "broadcast");
  recorder.set_state(first, CollectiveState::kFinished);
  recorder.set_state(second, CollectiveState::kWaiting);
  const auto history = recorder.history();
  ASSERT_EQ(history.size(), 3u);
  EXPECT_EQ(history[0].state, CollectiveState::kFinished);
  EXPECT_EQ(history[1].state, CollectiveState::kStarting);
  EXPECT_EQ(history[1].number, 1u);
  EXPECT_EQ(history[1].group, rows);
  EXPECT_STREQ(history[2].kind, "broadcast");
  EXPECT_EQ(history[2].number, 2u);
  EXPECT_EQ(history[2].input_numel, 4);
  EXPECT_EQ(history[2].output_numel, 8);
  EXPECT_EQ(history[2].dtype, at::kBFloat16);
  EXPECT_EQ(history[2].step, 12);
  EXPECT_EQ(history[2].phase, Phase::kData);
  const auto groups = recorder.groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name, "world");
  EXPECT_EQ(groups[0].started, 2u);
  EXPECT_EQ(groups[0].recent.back().state, CollectiveState::kWaiting);
  EXPECT_EQ(groups[1].ranks, (std::vector<int>{0, 2}));
}

TEST(FlightRecorder, KeepsTheLastOnesInOrder) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int busy = recorder.add_group("busy", {0, 1}), quiet = recorder.add_group("quiet", {0, 1});
  const auto held = start(recorder, quiet, "barrier");
  const auto early = start(recorder, busy);
  recorder.resize(100);
  for (int i = 0; i < 250; ++i) start(recorder, busy);
  const auto history = recorder.history();
  ASSERT_EQ(history.size(), 100u);
  for (std::size_t i = 0; i < history.size(); ++i) EXPECT_EQ(history[i].number, 152 + i);
  // A group's current collective is kept while other groups continue.
  recorder.set_state(held, CollectiveState::kWaiting);
  EXPECT_EQ(recorder.groups()[1].recent.back().state, CollectiveState::kWaiting);
  EXPECT_EQ(recorder.groups()[0].recent.size(), FlightRecorder::kRecent);
  // Setting the state of a dropped record changes no other record.
  recorder.set_state(early, CollectiveState::kFailed);
  for (const auto& record : recorder.history()) EXPECT_EQ(record.state, CollectiveState::kStarting);
}

TEST(FlightRecorder, KeepsAFewAtAnySetting) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  recorder.resize(0);
  const int group = recorder.add_group("world", {0, 1});
  for (int i = 0; i < 1000; ++i) start(recorder, group);
  EXPECT_EQ(recorder.history().size(), FlightRecorder::kFewest);
}

TEST(FlightRecorder, KnowsWhatACollectiveIsFor) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int group = recorder.add_group("fsdp", {0, 1});
  const auto bare = start(recorder, group);
  CollectiveTicket labelled, inner;
  std::string longer(100, 'x');
  longer += ".layers.31";
  {
    const Operation operation({}, "layers.3");
    labelled = start(recorder, group);
    {
      const Operation within({}, longer);
      inner = start(recorder, group);
    }
    // Labels do not apply to another thread's collectives.
    std::thread([&] { EXPECT_EQ(recorder.describe(start(recorder, group)), "all_reduce over 'fsdp'"); }).join();
    EXPECT_EQ(recorder.describe(start(recorder, group)), "all_reduce over 'fsdp' (layers.3)");
  }
  EXPECT_EQ(recorder.describe(bare), "all_reduce over 'fsdp'");
  EXPECT_EQ(recorder.describe(labelled), "all_reduce over 'fsdp' (layers.3)");
  EXPECT_THAT(recorder.describe(inner), HasSubstr("xxx.layers.31)"));
  EXPECT_EQ(recorder.describe(start(recorder, group)), "all_reduce over 'fsdp'");
  EXPECT_EQ(recorder.describe({.kind = "barrier"}), "barrier");
}

TEST(FlightRecorder, KeepsMessagesApartWithTheirPeer) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int group = recorder.add_group("pp", {4, 6, 8});
  const auto sum = start(recorder, group);
  CollectiveTicket sent;
  {
    const Operation operation({}, "layers.3");
    sent = recorder.start_send(group, 1, 4, at::kHalf);
  }
  recorder.start_send(group, 2, 5, at::kHalf);
  recorder.start_send(group, 1, 6, at::kHalf);
  const auto received = recorder.start_receive(group, 1, 7, at::kHalf);
  start(recorder, group);
  EXPECT_EQ(recorder.describe(sent), "send to rank 6 over 'pp' (layers.3)");
  EXPECT_EQ(recorder.describe(received), "receive from rank 6 over 'pp'");
  recorder.set_state(sum, CollectiveState::kFinished);
  recorder.set_state(received, CollectiveState::kFailed);
  EXPECT_TRUE(recorder.holds_training_thread());
  const auto history = recorder.groups().at(0);
  EXPECT_EQ(history.started, 2u);
  ASSERT_EQ(history.recent.size(), 2u);
  EXPECT_EQ(history.recent[0].state, CollectiveState::kFinished);
  EXPECT_EQ(history.recent[1].number, 2u);
  ASSERT_EQ(history.transfers.size(), 4u);
  EXPECT_EQ(history.transfers[0].number, 1u);
  EXPECT_EQ(history.transfers[1].peer, 8);
  EXPECT_EQ(history.transfers[1].number, 1u);
  EXPECT_EQ(history.transfers[2].number, 2u);
  EXPECT_EQ(history.transfers[2].input_numel, 6);
  EXPECT_EQ(history.transfers[3].output_numel, 7);
  EXPECT_EQ(history.transfers[3].state, CollectiveState::kFailed);
  EXPECT_EQ(history.sent, (std::vector<std::uint64_t>{0, 2, 1}));
  EXPECT_EQ(history.received, (std::vector<std::uint64_t>{0, 1, 0}));
  EXPECT_EQ(recorder.history().size(), 6u);
  EXPECT_EQ(recorder.history()[4].state, CollectiveState::kFailed);
  // The state of a record that others have replaced changes none of them.
  for (std::size_t i = 0; i < FlightRecorder::kRecentTransfers; ++i) recorder.start_send(group, 2, 1, at::kHalf);
  recorder.set_state(sent, CollectiveState::kWaiting);
  const auto last = recorder.groups().at(0).transfers;
  for (const auto& one : last) EXPECT_EQ(one.state, CollectiveState::kStarting);
}

// A device is asked for a number alone: its last collectives are those that it has not finished.
TEST(FlightRecorder, AsksWhatADeviceHasNotFinished) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int world = recorder.add_group("world", {0, 1}), rows = recorder.add_group("rows", {0, 2});
  std::int64_t unfinished = 0;
  recorder.set_device_queue(world, [&] { return unfinished; });
  const auto on_device = [&] {
    const auto ticket = recorder.start(world, "all_gather", 4, 8, at::kBFloat16, /*on_device=*/true);
    recorder.set_state(ticket, CollectiveState::kFinished);
  };
  const auto on_host = [&](int group) { recorder.set_state(start(recorder, group), CollectiveState::kFinished); };
  on_device();  // no. 1
  on_host(world);
  on_device();  // no. 3
  on_host(rows);
  on_device();  // no. 4
  EXPECT_FALSE(recorder.groups()[0].queued);
  unfinished = 2;
  auto groups = recorder.groups();
  ASSERT_TRUE(groups[0].queued);
  EXPECT_EQ(groups[0].queued->number, 3U);
  EXPECT_FALSE(groups[1].queued);
  const auto states_of = [](const std::vector<CollectiveRecord>& records) {
    std::vector<std::string> states;
    for (const auto& record : records) states.emplace_back(name_of(record.state));
    return states;
  };
  EXPECT_THAT(states_of(groups[0].recent), ElementsAre("finished", "finished", "queued", "queued"));
  EXPECT_THAT(states_of(recorder.history()), ElementsAre("finished", "finished", "queued", "finished", "queued"));
  EXPECT_FALSE(recorder.holds_training_thread());
  // Far more may be queued than a group keeps apart.
  for (std::size_t i = 0; i < FlightRecorder::kRecent; ++i) on_device();
  unfinished += FlightRecorder::kRecent;
  EXPECT_EQ(recorder.groups()[0].queued->number, 3U);
  // The device counts messages apart, so that the numbers say nothing any more.
  recorder.start_send(world, 1, 4, at::kFloat);
  EXPECT_FALSE(recorder.groups()[0].queued);
}

TEST(FlightRecorder, KnowsWhetherTheTrainingThreadStandsInOne) {
  PhaseLog phases;
  test::HandClock clock;
  FlightRecorder recorder(phases, clock.clock());
  const int world = recorder.add_group("world", {0, 1}), saves = recorder.add_group("checkpoint", {0, 1});
  recorder.set_runs_beside(saves);
  clock.advance(std::chrono::seconds(10));
  recorder.set_state(start(recorder, saves), CollectiveState::kWaiting);
  EXPECT_FALSE(recorder.holds_training_thread());
  EXPECT_DOUBLE_EQ(recorder.seconds_since_progress(), 10);
  const auto held = start(recorder, world);
  clock.advance(std::chrono::seconds(3));
  EXPECT_TRUE(recorder.holds_training_thread());
  EXPECT_DOUBLE_EQ(recorder.seconds_since_progress(), 3);
  recorder.set_state(held, CollectiveState::kFinished);
  clock.advance(std::chrono::seconds(1));
  EXPECT_FALSE(recorder.holds_training_thread());
  EXPECT_DOUBLE_EQ(recorder.seconds_since_progress(), 1);
}

TEST(FlightRecorder, KeepsTheStackOfTheFirstFailure) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int group = recorder.add_group("world", {0, 1});
  EXPECT_EQ(recorder.failed_stack().size, 0);
  recorder.fail(start(recorder, group));
  EXPECT_GT(recorder.failed_stack().size, 0);
  EXPECT_TRUE(recorder.holds_training_thread());
}

TEST(FlightRecorder, AllocatesNothingPerCollective) {
  PhaseLog phases;
  FlightRecorder recorder(phases);
  const int group = recorder.add_group("world", {0, 1});
  const Operation operation({}, "layers.3");
  const auto before = test::allocations();
  for (int i = 0; i < 1000; ++i) {
    const auto ticket = start(recorder, group);
    recorder.set_state(ticket, CollectiveState::kStarted);
    recorder.set_state(ticket, CollectiveState::kWaiting);
    recorder.set_state(ticket, CollectiveState::kFinished);
  }
  EXPECT_EQ(test::allocations().since(before).made, 0);
}

TEST(FlightRecorder, CountsTheTimeInCollectives) {
  PhaseLog phases;
  test::HandClock time;
  FlightRecorder recorder(phases, time.clock());
  const int group = recorder.add_group("world", {0, 1}), beside = recorder.add_group("saves", {0, 1});
  recorder.set_runs_beside(beside);
  const auto seconds = [&](int n) { time.advance(std::chrono::seconds(n)); };
  for (const int each : {group, beside}) {
    const auto ticket = start(recorder, each);
    seconds(1);
    recorder.set_state(ticket, CollectiveState::kStarted);
    seconds(10);  // other work meanwhile
    recorder.set_state(ticket, CollectiveState::kWaiting);
    seconds(2);
    recorder.set_state(ticket, CollectiveState::kFinished);
    seconds(10);
  }
  EXPECT_EQ(recorder.seconds_spent(), 3.0);
}

TEST(Dump, HasCollectivesAndStacks) {
  const int group = flight_recorder().add_group("of_this_test", {0, 1});
  CollectiveTicket ticket;
  {
    const Operation operation({}, "layers.7");
    ticket = start(flight_recorder(), group, "all_gather");
  }
  flight_recorder().set_state(ticket, CollectiveState::kWaiting);
  const std::string text = dump_text("a test asks");
  flight_recorder().set_state(ticket, CollectiveState::kFinished);
  EXPECT_THAT(text, HasSubstr("# a test asks\n# step 0, in start for "));
  EXPECT_THAT(text, HasSubstr("of_this_test: 1 collectives started; ranks 0 1\n"));
  EXPECT_THAT(text, HasSubstr("of_this_test 1 all_gather 4 8 bfloat16 [layers.7] step 0 (start) waiting "));
  EXPECT_THAT(text, HasSubstr("# Threads, innermost call first\n"));
}

}  // namespace
}  // namespace titan::dist
