#include "base/process/exit_code.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process/program_name.h"
#include "base/process/speaks.h"

namespace titan {
namespace {

using Variables = std::map<std::string, std::string>;

// While alive, sets the environment variables of launchers to exactly `values`.
class Environment {
 public:
  explicit Environment(const Variables& values) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
          "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"}) {
      if (const auto value = get_env(name)) before_[name] = *value;
      unsetenv(name);
      names_.emplace_back(name);
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> names_;
  Variables before_;
};

struct Ending {
  int exit_code;
  std::string words;
};

Ending end_of(const std::function<int()>& body, bool may_be_rank = true) {
  testing::internal::CaptureStderr();
  const int code = exit_code_of(body, may_be_rank, std::chrono::milliseconds(0));
  return {code, testing::internal::GetCapturedStderr()};
}

template <typename E>
std::function<int()> throwing(const E& error) {
  return [error]() -> int { throw error; };
}

const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kTorchrun = {
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};

const std::string kName = std::string(program_name()) + ": ";

TEST(ExitCode, MessagesSendNoCommandsToTheTerminal) {
  const Environment none(Variables{});
  EXPECT_EQ(end_of(throwing(DataError("\x1b[2J: no such file"))).words, "\\x1B[2J: no such file\n");
}

TEST(ExitCode, IsTheErrors) {
  const Environment none(Variables{});
  EXPECT_EQ(end_of([] { return 75; }).exit_code, 75);
  EXPECT_EQ(end_of(throwing(ConfigError("x"))).exit_code, 2);
  EXPECT_EQ(end_of(throwing(DataError("x"))).exit_code, 2);
  EXPECT_EQ(end_of(throwing(CheckpointError("x"))).exit_code, 1);
  EXPECT_EQ(end_of(throwing(PeerError("x"))).exit_code, 3);
  EXPECT_EQ(end_of(throwing(std::runtime_error("x"))).exit_code, 1);
  EXPECT_EQ(end_of([]() -> int { throw 7; }).exit_code, 1);
}

TEST(ExitCode, BadInputStandsAloneAndFailuresNameTheProgram) {
  const Environment none(Variables{});
  EXPECT_EQ(end_of([] { return 0; }).words, "");
  EXPECT_EQ(end_of(throwing(ConfigError("job.toml:1: error: x"))).words, "job.toml:1: error: x\n");
  EXPECT_EQ(end_of(throwing(CheckpointError("x"))).words, kName + "x\n");
  EXPECT_EQ(end_of(throwing(std::runtime_error("x"))).words, kName + "x\n");
}

TEST(ExitCode, FailuresNameTheRankThatWasDetected) {
  {
    const Environment mpich(kMpich);
    EXPECT_EQ(end_of(throwing(CheckpointError("x"))).words, kName + "rank 1: x\n");
  }
  {
    const Environment torchrun(kTorchrun);
    EXPECT_EQ(end_of(throwing(CheckpointError("x"))).words, kName + "rank 3: x\n");
    EXPECT_EQ(end_of(throwing(ConfigError("x"))).words, "x\n");
    EXPECT_EQ(end_of(throwing(CheckpointError("x")), /*may_be_rank=*/false).words, kName + "x\n");
  }
  {
    const Environment batch_shell(
        Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}});  // srun did not start this process
    EXPECT_EQ(end_of(throwing(CheckpointError("x"))).words, kName + "x\n");
  }
  {
    const Environment incomplete(Variables{{"RANK", "0"}});
    EXPECT_EQ(end_of(throwing(CheckpointError("x"))).words, kName + "x\n");
  }
}

TEST(Speaks, RanksThatDoNotSpeakWaitForTheEndWithoutAWord) {
  const auto waits = [] {
    exit_code_of([] { return report_once(false, throwing(ConfigError("x"))); }, true, std::chrono::hours(1));
  };
  EXPECT_EXIT((ualarm(100000, 0), waits()), testing::KilledBySignal(SIGALRM), "^$");
}

TEST(Speaks, RanksThatNobodyEndsSpeakToo) {
  const auto check = [](bool speaks, const std::function<int()>& body) {
    return end_of([&] { return report_once(speaks, body); });
  };
  EXPECT_EQ(check(true, throwing(ConfigError("x"))).words, "x\n");
  const Ending alone = check(false, throwing(DataError("x", {"a.b"})));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_EQ(alone.words, "error: x\n");
  // These errors do not come from an input that all ranks share, so this rank reports its own.
  EXPECT_EQ(check(false, throwing(std::runtime_error("x"))).words, kName + "x\n");
  EXPECT_EQ(check(false, throwing(CheckpointError("x"))).exit_code, 1);
  EXPECT_EQ(check(false, [] { return 5; }).exit_code, 5);
}

TEST(Speaks, RankZeroForTheJobAndLocalRankZeroForItsMachine) {
  LaunchEnv launch;
  EXPECT_TRUE(speaks_for_job(launch) && speaks_for_machine(launch));
  launch.rank = 2;
  EXPECT_TRUE(!speaks_for_job(launch) && speaks_for_machine(launch));
  launch.local_rank = 1;
  EXPECT_TRUE(!speaks_for_job(launch) && !speaks_for_machine(launch));
}

}  // namespace
}  // namespace titan
