// Tests how ranks learn that one of them has failed or ended, and which rank is blamed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/process/rank_process.h"
#include "distributed/failure_watch.h"
#include "distributed/hang_report.h"

namespace titan {
namespace {

using dist::FailureBoard;

// An idle process in place of a rank. It ends with this object, if not before.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  RankProcess process() const { return process_of(pid_); }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  // Kills the process without reaping it, like a rank whose launcher has not noticed yet.
  void end() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_;
};

RankProcess on_another_machine() { return {"another", 1, 1}; }

TEST(RankProcess, LivesStandsAndEnds) {
  EXPECT_EQ(life_of(own_process()), Life::kRuns);
  const Sleeper sleeper;
  EXPECT_EQ(life_of(sleeper.process()), Life::kRuns);
  sleeper.stop();
  const RankProcess process = sleeper.process();
  EXPECT_EQ(life_of(process), Life::kStopped);
  sleeper.end();
  EXPECT_EQ(life_of(process), Life::kEnded);
}

TEST(RankProcess, IsNotAnotherOfTheSameNumber) {
  RankProcess process = own_process();
  process.start_time += 1;
  EXPECT_EQ(life_of(process), Life::kEnded);
  process.machine = "another";
  EXPECT_EQ(life_of(process), Life::kUnknown);
  EXPECT_EQ(life_of({}), Life::kUnknown);
}

// Only the answer that there is no such process is its end.
TEST(RankProcess, IsUnknownToAProcessThatMayOpenNoFile) {
  const Sleeper sleeper;
  const RankProcess process = sleeper.process();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Life life = life_of(process);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(life, Life::kUnknown);
  EXPECT_EQ(life_of(process), Life::kRuns);
}

TEST(RankProcess, IsTheSameAfterItsText) {
  const RankProcess self = own_process();
  const RankProcess again = rank_process_from_text(to_text(self));
  EXPECT_EQ(again.machine, self.machine);
  EXPECT_EQ(again.pid, self.pid);
  EXPECT_EQ(again.start_time, self.start_time);
  EXPECT_EQ(life_of(rank_process_from_text("12 what")), Life::kUnknown);
}

FailureBoard board_of(int rank, int store_rank, std::vector<RankProcess> processes) {
  return {c10::make_intrusive<c10d::HashStore>(), rank, store_rank, std::move(processes)};
}

constexpr const char* kLost = "ended without reporting an error (killed, or out of memory?)";

TEST(Diagnosis, NamesTheRankThatEndedAndNotOneThatStandsStill) {
  const Sleeper standing, ended;
  standing.stop();
  auto board = board_of(0, 0, {own_process(), standing.process(), ended.process()});
  ended.end();
  EXPECT_EQ(diagnose_hang(board, "a symptom"), std::string("rank 2: ") + kLost);
}

TEST(Diagnosis, NeverNamesTheRankThatAsks) {
  // A rank's own process is checked like any other: with a wrong entry, the rank would find itself dead.
  const Sleeper other;
  RankProcess wrong = own_process();
  wrong.start_time += 1;
  auto board = board_of(0, 0, {wrong, other.process()});
  EXPECT_EQ(diagnose_hang(board, "a symptom", std::chrono::milliseconds(50)), "a symptom");
}

// A rank that knows only its own symptom ends with it. The others would find nothing but a process that ended.
TEST(Diagnosis, OfNobodyIsSaidAlikeByAllRanks) {
  const Sleeper other;
  auto board = board_of(1, 0, {other.process(), own_process()});
  EXPECT_EQ(diagnose_hang(board, "a symptom", std::chrono::milliseconds(50)), "a symptom");
  FailureBoard board_of_other{board.store, 0, 0, {own_process(), other.process()}};
  EXPECT_EQ(diagnose_hang(board_of_other, "another one", std::chrono::milliseconds(50)), "rank 1: a symptom");
}

TEST(Diagnosis, NamesTheRankThatStandsStillWhenNoneEnded) {
  const Sleeper standing;
  standing.stop();
  auto board = board_of(0, 0, {own_process(), standing.process()});
  const std::string found = diagnose_hang(board, "a symptom", std::chrono::milliseconds(50));
  EXPECT_TRUE(found.starts_with("rank 1: was stopped")) << found;
  // The same for the rank that serves the store, which then cannot be asked.
  auto other_board = board_of(1, 0, {standing.process(), own_process()});
  other_board.store = nullptr;
  const std::string other = diagnose_hang(other_board, "a symptom", std::chrono::milliseconds(50));
  EXPECT_TRUE(other.starts_with("rank 0: was stopped")) << other;
}

TEST(Diagnosis, TakesTheReasonThatWasWrittenFirst) {
  const Sleeper ended;
  auto board = board_of(0, 0, {own_process(), ended.process()});
  EXPECT_FALSE(report_failure(board, 1, "out of milk\nand a second line"));
  EXPECT_FALSE(report_failure(board, 1, "out of milk"));  // rank 1 has reported this itself
  EXPECT_FALSE(report_failure(board, 0, "out of sugar"));
  EXPECT_EQ(report_failure(board, 0, "out of milk\nand another second line"), 1);
  ended.end();
  EXPECT_EQ(diagnose_hang(board, "a symptom"), "rank 1: out of milk");
  EXPECT_TRUE(board.store->check({"titan/heard/0"}));
}

// Rank 0 serves the store, and ends once one thread of this rank has heard the reason. Other threads only see its end.
TEST(Diagnosis, KeepsWhatThisProcessHasHeardWhenTheStoreGoes) {
  const Sleeper server, ended;
  auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", c10d::TCPStoreOptions{.port = 0, .isServer = true});
  FailureBoard board{c10::make_intrusive<c10d::TCPStore>("127.0.0.1", c10d::TCPStoreOptions{.port = store->getPort()}),
                     2,
                     0,
                     {server.process(), ended.process(), own_process()}};
  auto of_watch = board;
  ended.end();
  report_failure(of_watch, 1, kLost);
  ASSERT_TRUE(read_failure(of_watch));
  store.reset();
  server.end();
  EXPECT_EQ(diagnose_hang(board, "a symptom"), std::string("rank 1: ") + kLost);
  EXPECT_EQ(why_store_is_gone(board), std::string("rank 1: ") + kLost);
}

TEST(Diagnosis, KeepsWhatThisProcessHasHeardWhenTheStoreStandsStill) {
  const Sleeper server, ended;
  auto board = board_of(2, 0, {server.process(), ended.process(), own_process()});
  auto of_watch = board;
  report_failure(of_watch, 1, "out of milk");
  ASSERT_TRUE(read_failure(of_watch));
  server.stop();
  EXPECT_EQ(diagnose_hang(board, "a symptom", std::chrono::milliseconds(50)), "rank 1: out of milk");
}

TEST(Diagnosis, CountsTheBeatsOfAnotherMachineByItsOwn) {
  // Rank 1 beats whenever rank 0 does, rank 2 does not any more: rank 2 is blamed, however slow the beats are.
  auto board = board_of(0, 0, {own_process(), on_another_machine(), on_another_machine()});
  std::atomic<bool> done = false;
  std::thread beats([&, store = board.store] {
    store->add("titan/beat/2", 3);
    while (!done) {
      store->add("titan/beat/1", 1);
      store->add("titan/beat/0", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const std::string found = diagnose_hang(board, "a symptom", std::chrono::hours(1));
  EXPECT_TRUE(found.starts_with("rank 2: has fallen silent")) << found;
  done = true;
  beats.join();
}

TEST(Watch, FindsARankThatEndedWhileNobodyWaitsForIt) {
  const Sleeper ended;
  auto board = board_of(0, 0, {own_process(), ended.process()});
  std::promise<std::string> reason;
  dist::FailureWatch watch(board, [&](const std::string& text) { reason.set_value(text); });
  ended.end();
  EXPECT_EQ(reason.get_future().get(), std::string("rank 1: ") + kLost);
}

TEST(Watch, IsSilentAboutItsOwnRank) {
  const Sleeper ended;
  auto board = board_of(0, 0, {own_process(), ended.process()});
  report_failure(board, 0, "my own");
  bool called = false;
  dist::FailureWatch watch(board, [&](const std::string&) { called = true; });
  // The first check of the watch is its last; it leaves the mark that it has heard before it decides.
  while (!board.store->check({"titan/heard/0"})) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.stop();
  EXPECT_FALSE(called);
}

TEST(Leaving, TheStoreStaysUntilAllOthersHaveHeard) {
  const Sleeper listener, deaf;
  auto board = board_of(0, 0, {own_process(), listener.process(), deaf.process()});
  deaf.end();
  report_failure(board, 0, "my own");
  auto of_listener = board;
  of_listener.rank = 1;
  dist::FailureWatch watch(of_listener, [](const std::string&) {});
  leave_in_order(board, "rank 0: my own", std::chrono::hours(1));
  EXPECT_TRUE(board.store->check({"titan/heard/1"}));
}

TEST(Leaving, AMessengerStaysUntilTheRankThatFailedHasEnded) {
  const Sleeper failed;
  auto board = board_of(0, -1, {own_process(), failed.process()});
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that a return without waiting is seen
    failed.end();
  });
  leave_in_order(board, "rank 1: out of milk", std::chrono::hours(1));
  EXPECT_EQ(life_of(failed.process()), Life::kEnded);
  later.join();
}

}  // namespace
}  // namespace titan
