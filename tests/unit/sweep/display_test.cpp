#include "sweep/display.h"

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <thread>

#include "base/text.h"

namespace titan::sweep {
namespace {

using ::testing::HasSubstr;

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

// What a terminal of 40 columns gets from a display that is refreshed for 0.3 s, and then tells of an event.
std::string on_a_terminal() {
  int terminal = -1;
  winsize size{};
  size.ws_row = 10, size.ws_col = 40;
  std::fflush(nullptr);  // or the child prints it as well
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    ::setenv("TERM", "xterm", 1);
    Display display;
    for (int i = 0; i < 30; ++i) {
      display.refresh(two_trials(), {{0, 5, 60, std::nan("")}});
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    display.event("an event");
    display.refresh(two_trials(), {});
    display.close();
    ::_exit(0);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<std::size_t>(count));
  ::waitpid(pid, nullptr, 0);
  ::close(terminal);
  return out;
}

TEST(Display, DrawsOnceASecondAndPutsEventsAboveTheTable) {
  const auto parts = split(on_a_terminal(), '\x1b');
  // The first table, "up 4 lines", "erase" and the event with the table below it, "up 3 lines", "erase".
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[1], "[4A");
  EXPECT_THAT(parts[2], HasSubstr("[Jan event\r\nsweep lr, 2 trials: "));
  EXPECT_EQ(parts[3], "[3A");
  for (const auto& line : split(parts[0], '\n')) EXPECT_LE(line.size(), 40u) << line;
}

}  // namespace
}  // namespace titan::sweep
