// Tests real ranks that hang, one kind after the other, and what they report. Nothing depends on speed: a rank hangs
// until it is ended, and the rank whose time limit expires starts to wait when all others are in their places.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/process/phase.h"
#include "base/process/step_work.h"
#include "base/stack/crash.h"
#include "distributed/flight/flight_recorder.h"
#include "distributed/world.h"
#include "tests/support/guard.h"
#include "tests/support/run_ranks.h"
#include "trace/operation.h"

namespace titan {
namespace {

using dist::ReduceOp;
using test::RankEnd;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr auto kSoon = std::chrono::milliseconds(300);

std::filesystem::path mark(int rank) {
  return std::filesystem::temp_directory_path() / ("stands-" + std::to_string(rank));
}
void leave_mark(int rank) { std::ofstream(mark(rank)).flush(); }
bool is_marked(int rank) { return std::filesystem::exists(mark(rank)); }

[[noreturn]] void hang(dist::World& world) {
  leave_mark(world.rank());
  for (;;) ::pause();
}

// Runs `collective`, and leaves a mark as soon as its thread is in it.
void stand_in(dist::World& world, const std::function<void()>& collective) {
  std::thread([rank = world.rank()] {
    while (!dist::flight_recorder().holds_training_thread()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    leave_mark(rank);
  }).detach();
  collective();
}

void wait_for_others(dist::World& world) {
  for (int rank = 0; rank < world.size(); ++rank)
    if (rank != world.rank()) test::wait_until([rank] { return is_marked(rank); }, "rank " + std::to_string(rank));
}

void reduce(dist::World& world, std::int64_t numel) {
  world.group().all_reduce(at::ones({numel}), ReduceOp::kSum).wait();
}

// Runs a step in which all ranks take part, and another that `body` makes fail. Ends as the program does.
std::vector<RankEnd> ends_after(int ranks, const std::function<void(dist::World&)>& body) {
  return test::ends_of_ranks(ranks, [&](dist::World& world) {
    phase_log().set_step(7);
    reduce(world, 4);
    world.group().barrier();
    try {
      body(world);
    } catch (const PeerError& error) {
      world.stop(error.what());
    }
  });
}

// Lets rank 0's time limit expire in an all-reduce that all ranks but `guilty` have entered; `guilty` does `instead`.
std::vector<RankEnd> ends_where(int ranks, int guilty, const std::function<void(dist::World&)>& instead) {
  return ends_after(ranks, [=](dist::World& world) {
    if (world.rank() == guilty) instead(world);
    const PhaseScope phase(Phase::kStep);
    const Operation operation({}, "layers.3");
    if (world.rank() != 0) return stand_in(world, [&] { reduce(world, 8); });
    wait_for_others(world);
    world.set_timeout(kSoon);
    reduce(world, 8);
  });
}

std::string said_by_all(const std::vector<RankEnd>& ends) {
  std::string said;
  for (const auto& end : ends) said += end.said;
  return said;
}

// Checks that every rank exits by itself with the same reason, and that one reports what all ranks do.
void expect_reason(const std::vector<RankEnd>& ends, const std::string& pattern) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].how, "exit code 3") << ends[rank].said;
    EXPECT_THAT(ends[rank].said, ContainsRegex(": rank " + std::to_string(rank) + ": stops: " + pattern));
  }
  EXPECT_THAT(said_by_all(ends), HasSubstr("a collective did not end. What the ranks do:"));
}

TEST(Hang, InDataOrASaveIsSaidOfTheRankThatHangs) {
  const auto ends = ends_where(3, 2, [](dist::World& world) {
    const PhaseScope phase(Phase::kData);
    hang(world);
  });
  if (test::is_rank()) return;
  expect_reason(ends,
                "rank 2: has been in data for [0-9.]+ s at step 7, while ranks 0, 1 wait for it in all_reduce of 8 "
                "elements of float32 for layers.3, no. [0-9]+ of 'world'\n");
  EXPECT_THAT(said_by_all(ends), ContainsRegex("rank 2: at step 7, in data for [0-9.]+ s, in no collective"));
}

TEST(Hang, OfRankZeroIsSaidByTheOthers) {
  const auto ends = ends_after(2, [](dist::World& world) {
    if (world.rank() == 0) {
      const PhaseScope phase(Phase::kCheckpoint);
      hang(world);
    }
    wait_for_others(world);
    world.set_timeout(kSoon);
    reduce(world, 8);
  });
  if (test::is_rank()) return;
  expect_reason(ends,
                "rank 0: has been in checkpoint for [0-9.]+ s at step 7, while rank 1 waits for it in all_reduce");
}

// Rank 2 waits in another collective, which rank 1 never enters: rank 1 is to blame, not rank 2.
TEST(Hang, IsNotTheVictims) {
  const auto ends = ends_after(3, [](dist::World& world) {
    const auto pair = world.rank() == 0 ? nullptr : world.make_group("pair", {1, 2});
    if (world.rank() == 1) {
      const PhaseScope phase(Phase::kValidation);
      hang(world);
    }
    if (world.rank() == 2) stand_in(world, [&] { pair->all_reduce(at::ones({2}), ReduceOp::kSum).wait(); });
    wait_for_others(world);
    world.set_timeout(kSoon);
    reduce(world, 8);
  });
  if (test::is_rank()) return;
  expect_reason(ends, "rank 1: has been in validation for ");
}

// The skipped collective has the same size as the next one, so that nothing else shows it.
TEST(Hang, AfterACollectiveThatARankLeftOutIsThatRanks) {
  const auto ends = ends_after(3, [](dist::World& world) {
    if (world.rank() == 1) {
      const Operation operation({}, "layers.5");
      reduce(world, 8);
      hang(world);
    }
    {
      const Operation operation({}, "layers.4");
      reduce(world, 8);
    }
    const Operation operation({}, "layers.5");
    if (world.rank() == 2) return stand_in(world, [&] { reduce(world, 8); });
    wait_for_others(world);
    world.set_timeout(kSoon);
    reduce(world, 8);
  });
  if (test::is_rank()) return;
  expect_reason(ends,
                "rank 1: disagrees on no. [0-9]+ of 'world': all_reduce of 8 elements of float32 for layers.5, where "
                "ranks 0, 2 have all_reduce of 8 elements of float32 for layers.4; it has 1 collective left out\n");
}

// Stages of a pipeline: rank 2 waits for rank 1, which waits for rank 0. Before that, each rank had other messages than
// the others, and nobody takes that for a disagreement.
TEST(Hang, OfAStageIsSaidWithTheMessageThatOthersWaitFor) {
  const auto ends = ends_after(3, [](dist::World& world) {
    auto& group = world.group();
    const auto receive = [&](int from) { group.receive(at::empty({8}), from).wait(); };
    const auto send = [&](int to) { group.send(at::empty({8}), to).wait(); };
    if (world.rank() > 0) receive(world.rank() - 1);
    if (world.rank() < 2) send(world.rank() + 1);
    reduce(world, 4);
    const PhaseScope phase(Phase::kStep);
    step_work().begin_in_pipeline({.stage = static_cast<std::int16_t>(world.rank()), .microbatch = 2});
    if (world.rank() == 0) hang(world);
    const Operation operation({}, "layers.3");
    if (world.rank() == 1) return stand_in(world, [&] { receive(0); });
    wait_for_others(world);
    world.set_timeout(kSoon);
    receive(1);
  });
  if (test::is_rank()) return;
  expect_reason(
      ends,
      "rank 0: has been in step for [0-9.]+ s at step 7 .forward of stage 0, microbatch 2., while rank 1 waits "
      "for it in a receive of 8 elements of float32 from rank 0 for layers.3, message no. 2 of 'world'\n");
  EXPECT_THAT(said_by_all(ends),
              ContainsRegex("rank 2: at step 7 .forward of stage 2, microbatch 2., in step; waits in a "
                            "receive of 8 elements of "
                            "float32 from rank 1 for layers.3, message no. 2 of 'world', since"));
}

TEST(Hang, DisagreementIsSaidWithWhatTheRanksHave) {
  const auto ends = ends_where(3, 2, [](dist::World& world) {
    const Operation operation({}, "layers.4");
    stand_in(world, [&] { reduce(world, 9); });
  });
  if (test::is_rank()) return;
  EXPECT_THAT(said_by_all(ends),
              ContainsRegex("all_reduce over 'world' \\(layers.[34]\\): ranks disagree on their "
                            "collective number [0-9]+: rank [0-2] has all_reduce \\(sum\\) of [89]"));
}

TEST(Hang, OfARankThatWasKilledIsItsEnd) {
  const auto ends = ends_where(3, 2, [](dist::World& world) {
    leave_mark(world.rank());
    ::raise(SIGKILL);
  });
  if (test::is_rank()) return;
  EXPECT_EQ(ends[2].how, "SIGKILL");
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ends[rank].how, "exit code 3");
    EXPECT_THAT(ends[rank].said,
                HasSubstr("stops: rank 2: ended without reporting an error (killed, or out of memory?)\n"));
  }
}

TEST(Hang, OfARankThatCrashedIsItsSignal) {
  const auto ends = ends_where(3, 1, [](dist::World& world) {
    install_crash_handlers(world.rank());
    leave_mark(world.rank());
    ::raise(SIGSEGV);
  });
  if (test::is_rank()) return;
  EXPECT_EQ(ends[1].how, "SIGSEGV");
  EXPECT_THAT(ends[1].said, HasSubstr(": rank 1: ended by SIGSEGV in step 7 (start); the stack of its thread"));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[rank].how, "exit code 3");
    EXPECT_THAT(ends[rank].said,
                HasSubstr("stops: rank 1: ended by SIGSEGV in step 7; its standard error has the stack\n"));
  }
}

// Rank 0 serves the store and crashes: the others hear of it before the store is gone.
TEST(Hang, OfRankZeroThatCrashedIsItsSignal) {
  const auto ends = ends_after(3, [](dist::World& world) {
    if (world.rank() == 0) {
      install_crash_handlers(0);
      ::raise(SIGABRT);
    }
    reduce(world, 8);
  });
  if (test::is_rank()) return;
  EXPECT_EQ(ends[0].how, "SIGABRT");
  for (const int rank : {1, 2})
    EXPECT_THAT(ends[rank].said,
                HasSubstr("stops: rank 0: ended by SIGABRT in step 7; its standard error has the stack\n"));
}

}  // namespace
}  // namespace titan
