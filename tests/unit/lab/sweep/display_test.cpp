#include "lab/sweep/report/display.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string_view>

#include "tests/support/hand_clock.h"

namespace titan::sweep {
namespace {

using namespace std::chrono_literals;

Record two_trials() {
  Record record;
  record.name = "lr";
  record.keys = {"optimizer.lr", "debug.seed"};
  record.trials.resize(2);
  record.trials[0].values = {{"optimizer.lr", 0.001}, {"debug.seed", std::int64_t{7}}};
  record.trials[0].state = State::kRunning;
  record.trials[1].values = {{"optimizer.lr", 0.01}};
  record.trials[1].state = State::kDone;
  record.trials[1].objective = 2.5;
  record.trials[1].rung_objectives = {2.5};
  return record;
}

TEST(LiveTable, CountsTrialsAndShowsTheRunningOnesAndTheBest) {
  EXPECT_EQ(live_table(two_trials(), {{0, 5, 60, 3.25}}, 65, 20),
            "sweep lr, 2 trials: 1 done, 1 running, 1:05\n"
            "  running trial 0 (lr=0.001, seed=7): step 5 of 60, loss 3.25\n"
            "rank  trial  loss  steps  state  time    lr  seed\n"
            "   1      1   2.5      0  done   0:00  0.01      \n");
}

// Returns what a terminal of 45 columns and 10 rows gets from `body`, run in a child process.
std::string on_a_terminal(const std::function<void()>& body) {
  static constexpr std::string_view kEnd = "<end>";
  int terminal = -1;
  winsize size{};
  size.ws_row = 10, size.ws_col = 45;
  std::fflush(nullptr);  // or the child prints it as well
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    ::setenv("TERM", "xterm", 1);
    body();
    std::fputs(kEnd.data(), stdout);
    std::fflush(stdout);
    // Exiting would hang up the terminal and lose what has not been read by then.
    for (;;) ::pause();
  }
  std::string out;
  char buffer[4096];
  for (ssize_t count; !out.ends_with(kEnd) && (count = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(count));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ::close(terminal);
  EXPECT_TRUE(out.ends_with(kEnd)) << out;
  return out.substr(0, out.rfind(kEnd));
}

TEST(Display, DrawsOnceASecondAndPutsEventsAboveTheTable) {
  const auto at_step = [](std::int64_t step) { return std::vector<Progress>{{0, step, 60, std::nan("")}}; };
  const std::string out = on_a_terminal([&] {
    test::HandClock time;
    Display display(time.clock());
    display.refresh(two_trials(), at_step(5));
    time.advance(999ms);
    display.refresh(two_trials(), at_step(6));  // too soon
    time.advance(1ms);
    display.refresh(two_trials(), at_step(7));
    display.event("an event");
    display.refresh(two_trials(), {});  // at once: the table has to come back
    display.close();
  });
  // Each line is cut to the terminal's width less one; "\r\x1b[4A\x1b[J" moves four lines up and erases what is below.
  const std::string running = "  running trial 0 (lr=0.001, seed=7): step ";
  const std::string best =
      "rank  trial  loss  steps  state  time    lr \r\n"
      "   1      1   2.5      0  done   0:00  0.01 \r\n";
  EXPECT_EQ(out, "sweep lr, 2 trials: 1 done, 1 running, 0:00\r\n" + running + "5\r\n" + best +  //
                     "\r\x1b[4A\x1b[J" +                                                         //
                     "sweep lr, 2 trials: 1 done, 1 running, 0:01\r\n" + running + "7\r\n" + best + "\r\x1b[4A\x1b[J" +
                     "an event\r\n" +  //
                     "sweep lr, 2 trials: 1 done, 1 running, 0:01\r\n" + best + "\r\x1b[3A\x1b[J");
}

}  // namespace
}  // namespace titan::sweep
