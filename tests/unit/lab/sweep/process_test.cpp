// Uses real processes: a shell instead of the program.
#include "lab/sweep/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "support.h"
#include "tests/support/guard.h"

namespace titan::sweep {
namespace {

using ::testing::HasSubstr;

Exit wait_for(pid_t pid) {
  return *test::wait_until([pid] { return poll_process(pid); }, "the end of a process");
}

class ProcessTest : public ::testing::Test {
 protected:
  Launch shell(const std::string& script) const {
    Launch launch;
    launch.words = {"sh", "-c", script};
    launch.log = folder_.path() / "log.txt";
    launch.lock = folder_.path() / ".lock";
    return launch;
  }
  std::string log() const { return read_file(folder_.path() / "log.txt"); }

  TemporaryFolder folder_;
};

TEST_F(ProcessTest, AppendsBothOutputsAndGivesTheExitCode) {
  folder_.write("log.txt", "before\n");
  const auto exit = wait_for(*start_process(shell("echo out; echo err >&2; exit 75")));
  EXPECT_EQ(exit.code, 75);
  EXPECT_EQ(log(), "before\nout\nerr\n");
}

TEST_F(ProcessTest, RunsOnItsCoresWithItsVariables) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof(all), &all);
  int core = 0;
  while (!CPU_ISSET(core, &all)) ++core;
  auto launch =
      shell("grep Cpus_allowed_list /proc/self/status; echo $OMP_NUM_THREADS-$RANK-$TITAN_OPTIMIZER__LR-$TITAN_KEPT");
  launch.cores = {core};
  launch.environment = {{"OMP_NUM_THREADS", "3"}};
  setenv("RANK", "1", 1);
  setenv("TITAN_OPTIMIZER__LR", "9", 1);
  setenv("TITAN_KEPT", "kept", 1);
  wait_for(*start_process(launch));
  for (const char* name : {"RANK", "TITAN_OPTIMIZER__LR", "TITAN_KEPT"}) unsetenv(name);
  EXPECT_THAT(log(), HasSubstr("Cpus_allowed_list:\t" + std::to_string(core) + "\n3---kept\n"));
}

TEST_F(ProcessTest, IsInAGroupOfItsOwnWhichEndsAsAWhole) {
  const auto pid = *start_process(shell("sleep 100 & wait"));
  test::wait_until([pid] { return getpgid(pid) == pid; }, "a process in a group of its own");
  signal_process(pid, SIGKILL, /*whole_group=*/true);
  EXPECT_EQ(wait_for(pid).signal, SIGKILL);
}

// A started process inherits the lock: a rank that is still running keeps its trial from starting again.
TEST_F(ProcessTest, HoldsItsLockUntilTheLastOfItIsGone) {
  const std::string gate = folder_.path() / "gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const int opener = open(gate.c_str(), O_RDWR | O_CLOEXEC);  // also for reading, so that open() does not wait
  ASSERT_GE(opener, 0);
  wait_for(*start_process(shell("{ read line; } < '" + gate + "' &")));
  EXPECT_EQ(start_process(shell("true")), std::nullopt);
  ASSERT_EQ(write(opener, "\n", 1), 1);
  wait_for(*test::wait_until([this] { return start_process(shell("true")); }, "the lock"));
  close(opener);
}

TEST_F(ProcessTest, AProgramThatIsNotThereSaysSoInTheLog) {
  auto launch = shell("");
  launch.words = {"no-such-launcher", "x"};
  EXPECT_EQ(wait_for(*start_process(launch)).code, 127);
  EXPECT_THAT(log(), HasSubstr("cannot start no-such-launcher: No such file or directory"));
}

TEST_F(ProcessTest, FindsTheLineThatTellsWhy) {
  const auto path = folder_.write(
      "log.txt", "step 1\nerror: first\nstep 2\n  error: optimizer.lr is wrong\n   3 | lr\n     | ^\nbye\n\n");
  EXPECT_EQ(last_error_line(path), "error: optimizer.lr is wrong");
  EXPECT_EQ(last_error_line(path, 10), "error: ...");
  EXPECT_EQ(last_error_line(folder_.write("log.txt", "one\ntwo\n")), "two");
  const std::string of_slurm = "srun: error: vm: task 0: Exited with exit code 1";
  EXPECT_EQ(last_error_line(folder_.write("log.txt", "rank 0: no memory: failed\n" + of_slurm)),
            "rank 0: no memory: failed");
  EXPECT_EQ(last_error_line(folder_.write("log.txt", of_slurm + "\n")), of_slurm);
  EXPECT_EQ(last_error_line(folder_.path() / "none"), "");
}

}  // namespace
}  // namespace titan::sweep
