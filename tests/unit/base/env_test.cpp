#include "base/env.h"

#include <gmock/gmock.h>

#include <map>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Vars = std::map<std::string, std::string>;

LaunchEnv detect(const Vars& vars) {
  return detect_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto it = vars.find(name);
    return it == vars.end() ? std::nullopt : std::optional(it->second);
  });
}

std::string error_of(const Vars& vars) {
  return test::message_of<ConfigError>([&] { detect(vars); });
}

Vars with(Vars vars, const Vars& more) {
  for (const auto& [name, value] : more) vars[name] = value;
  return vars;
}

Vars without(Vars vars, const std::string& name) {
  vars.erase(name);
  return vars;
}

const Vars kTorchrun = {{"RANK", "3"},
                        {"WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "node7"},
                        {"MASTER_PORT", "29501"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                        {"TORCHELASTIC_RUN_ID", "run-5"}};

const Vars kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "prterun-a/1"}};

const Vars kMpich = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_PORT", "h:1"}};

const Vars kSrun = {{"SLURM_JOB_ID", "1234"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", "5"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_NODEID", "1"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                    {"SLURM_STEP_NODELIST", "gpu-[003-004]"},
                    {"SLURM_JOB_NODELIST", "gpu-[001-009]"}};

TEST(DetectLaunch, NothingSetIsOneRankAlone) {
  const LaunchEnv env = detect({{"MASTER_ADDR", "x"}});
  EXPECT_EQ(env.launcher, Launcher::kAlone);
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.local_world_size, 1);
}

TEST(DetectLaunch, Torchrun) {
  const LaunchEnv env = detect(kTorchrun);
  EXPECT_EQ(env.launcher, Launcher::kTorchrun);
  EXPECT_EQ(env.rank, 3);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.master_addr, "node7");
  EXPECT_EQ(env.master_port, 29501);
  EXPECT_TRUE(env.use_agent_store);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_EQ(env.job_id, "run-5");
  EXPECT_EQ(env.rendezvous_key, "");
}

TEST(DetectLaunch, TorchrunsDefaultRunIdIsReplacedByTheAddress) {
  EXPECT_EQ(detect(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).job_id, "node7-29501");
}

TEST(DetectLaunch, TorchrunUnderOtherLaunchersWins) {
  EXPECT_EQ(detect(with(kTorchrun, kSrun)).launcher, Launcher::kTorchrun);
  EXPECT_EQ(detect(with(kTorchrun, kOpenMpi)).rank, 3);
}

TEST(DetectLaunch, IncompleteTorchrunVariablesNameTheMissingOne) {
  EXPECT_THAT(error_of(without(kTorchrun, "WORLD_SIZE")), HasSubstr("WORLD_SIZE is not set, although RANK is"));
  EXPECT_THAT(error_of(without(kTorchrun, "RANK")), HasSubstr("RANK is not set, although WORLD_SIZE is"));
  EXPECT_THAT(error_of(without(kTorchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is not set"));
}

TEST(DetectLaunch, WrongNumbersNameTheVariable) {
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 is not less than WORLD_SIZE=4"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
              HasSubstr("LOCAL_RANK=2 is not less than LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "one"}})), HasSubstr("RANK=one: expected an integer"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1: expected an integer"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"WORLD_SIZE", "4x"}})), HasSubstr("WORLD_SIZE=4x"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"WORLD_SIZE", "4611686018427387904"}})),
              HasSubstr("WORLD_SIZE=4611686018427387904: expected at most 1048576 ranks"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "http"}})), HasSubstr("MASTER_PORT=http: expected a port"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT=65536"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "0"}})), HasSubstr("MASTER_PORT=0"));
}

TEST(DetectLaunch, LeftoverRankAgainstMpirunIsAnError) {
  Vars vars = with(without(kTorchrun, "TORCHELASTIC_RUN_ID"), kOpenMpi);
  EXPECT_THAT(error_of(vars), HasSubstr("RANK=3 contradicts OMPI_COMM_WORLD_RANK=1"));
  vars = with(vars, {{"RANK", "1"}});
  EXPECT_THAT(error_of(vars), HasSubstr("WORLD_SIZE=4 contradicts OMPI_COMM_WORLD_SIZE=2"));
  vars = with(vars, {{"WORLD_SIZE", "2"}});
  EXPECT_EQ(error_of(vars), "no error");
}

TEST(DetectLaunch, OpenMpiOnOneMachineMeetsThroughAFile) {
  const LaunchEnv env = detect(kOpenMpi);
  EXPECT_EQ(env.launcher, Launcher::kOpenMpi);
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.world_size, 2);
  EXPECT_EQ(env.master_addr, "127.0.0.1");
  EXPECT_EQ(env.master_port, 0);
  EXPECT_THAT(env.rendezvous_key, HasSubstr("prterun-a_1"));
  EXPECT_NE(detect(with(kOpenMpi, {{"PMIX_NAMESPACE", "b"}})).rendezvous_key, env.rendezvous_key);
  EXPECT_EQ(detect(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})).rendezvous_key,
            env.rendezvous_key);
}

TEST(DetectLaunch, OpenMpiOnSeveralMachinesNeedsAnAddress) {
  const Vars vars = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(error_of(vars), AllOf(HasSubstr("-x MASTER_ADDR="), HasSubstr("-x MASTER_PORT=")));
  EXPECT_THAT(error_of(with(vars, {{"MASTER_ADDR", "n1"}})), HasSubstr("MASTER_PORT is not set"));
  const LaunchEnv env = detect(with(vars, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(env.launcher, Launcher::kOpenMpi);
  EXPECT_EQ(env.master_addr, "n1");
  EXPECT_EQ(env.master_port, 4000);
  EXPECT_EQ(env.rendezvous_key, "");
  EXPECT_EQ(env.local_world_size, 2);
}

TEST(DetectLaunch, OpenMpiWithoutSizeOrWithWrongRank) {
  EXPECT_THAT(error_of(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(error_of(without(kOpenMpi, "OMPI_COMM_WORLD_RANK")), HasSubstr("OMPI_COMM_WORLD_RANK is not set"));
  EXPECT_THAT(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK=2 is not less than"));
}

TEST(DetectLaunch, Mpich) {
  const LaunchEnv env = detect(kMpich);
  EXPECT_EQ(env.launcher, Launcher::kMpich);
  EXPECT_EQ(env.world_size, 2);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.master_port, 0);
  EXPECT_THAT(env.rendezvous_key, HasSubstr("h:1"));
}

TEST(DetectLaunch, MpichWithoutLocalCountsCannotAssumeOneMachine) {
  EXPECT_THAT(error_of(without(kMpich, "MPI_LOCALNRANKS")),
              AllOf(HasSubstr("MPI_LOCALNRANKS"), HasSubstr("MASTER_ADDR=")));
}

TEST(DetectLaunch, Srun) {
  const LaunchEnv env = detect(kSrun);
  EXPECT_EQ(env.launcher, Launcher::kSlurm);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 7);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 3);
  EXPECT_EQ(env.master_addr, "gpu-003");
  EXPECT_GE(env.master_port, 20000);
  EXPECT_LT(env.master_port, 60000);
  EXPECT_EQ(env.job_id, "1234.0");
  EXPECT_EQ(detect(with(kSrun, {{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}})).master_port, env.master_port);
  EXPECT_NE(detect(with(kSrun, {{"SLURM_STEP_ID", "1"}})).master_port, env.master_port);
  EXPECT_NE(detect(with(kSrun, {{"SLURM_JOB_ID", "1235"}})).master_port, env.master_port);
}

// Job scripts export WORLD_SIZE for other programs.
TEST(DetectLaunch, WorldSizeAloneIsNoLaunch) {
  const LaunchEnv env = detect(with(kSrun, {{"WORLD_SIZE", "7"}}));
  EXPECT_EQ(env.launcher, Launcher::kSlurm);
  EXPECT_EQ(env.rank, 5);
  EXPECT_THAT(error_of(with(kSrun, {{"WORLD_SIZE", "8"}})), HasSubstr("WORLD_SIZE=8 contradicts the 7 ranks of slurm"));
  EXPECT_EQ(detect(with(kOpenMpi, {{"WORLD_SIZE", "2"}})).launcher, Launcher::kOpenMpi);
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not set, although WORLD_SIZE is"));
}

TEST(DetectLaunch, SrunTasksPerNodeWithRepeats) {
  const Vars vars = with(kSrun, {{"SLURM_NTASKS", "11"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}});
  EXPECT_EQ(detect(with(vars, {{"SLURM_NODEID", "0"}})).local_world_size, 4);
  EXPECT_EQ(detect(with(vars, {{"SLURM_NODEID", "1"}})).local_world_size, 4);
  EXPECT_EQ(detect(with(vars, {{"SLURM_NODEID", "2"}})).local_world_size, 3);
  EXPECT_THAT(error_of(with(vars, {{"SLURM_NODEID", "3"}})), HasSubstr("SLURM_STEP_TASKS_PER_NODE=4(x2),3"));
}

TEST(DetectLaunch, SrunWithGivenAddressAndPort) {
  const LaunchEnv env = detect(with(kSrun, {{"MASTER_ADDR", "10.0.0.9"}, {"MASTER_PORT", "6000"}}));
  EXPECT_EQ(env.master_addr, "10.0.0.9");
  EXPECT_EQ(env.master_port, 6000);
}

TEST(DetectLaunch, SrunFallsBackToTheJobsNodes) {
  EXPECT_EQ(detect(without(kSrun, "SLURM_STEP_NODELIST")).master_addr, "gpu-001");
  EXPECT_THAT(error_of(without(without(kSrun, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST")), HasSubstr("MASTER_ADDR"));
}

TEST(DetectLaunch, SlurmShellsWithoutSrunAreAlone) {
  EXPECT_EQ(detect(without(kSrun, "SLURM_STEP_ID")).launcher, Launcher::kAlone);
  EXPECT_EQ(detect(with(kSrun, {{"SLURM_NTASKS", "1"}})).launcher, Launcher::kAlone);
  EXPECT_EQ(detect(with(kSrun, {{"SLURM_STEP_ID", "4294967291"}})).launcher, Launcher::kAlone);
}

TEST(DetectLaunch, MpirunInsideASlurmAllocationIsMpirun) {
  EXPECT_EQ(detect(with(without(kSrun, "SLURM_STEP_ID"), kOpenMpi)).launcher, Launcher::kOpenMpi);
}

TEST(DetectLaunch, ReadsTheRealEnvironment) {
  ASSERT_EQ(setenv("TITAN_ENV_TEST", "v", 1), 0);
  EXPECT_EQ(get_env("TITAN_ENV_TEST"), "v");
  unsetenv("TITAN_ENV_TEST");
  EXPECT_EQ(get_env("TITAN_ENV_TEST"), std::nullopt);
}

TEST(ExpandNodeList, AllForms) {
  EXPECT_THAT(expand_node_list("a"), ElementsAre("a"));
  EXPECT_THAT(expand_node_list("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(expand_node_list("node[003-007,9]"),
              ElementsAre("node003", "node004", "node005", "node006", "node007", "node9"));
  EXPECT_THAT(expand_node_list("gpu-[1,3]-x,login"), ElementsAre("gpu-1-x", "gpu-3-x", "login"));
  EXPECT_THAT(expand_node_list("r[1-2]n[08-10]"), ElementsAre("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"));
}

TEST(ExpandNodeList, BrokenListsAreErrors) {
  for (const char* list : {"", "a[1-2", "a[3-1]", "a[x]", "a,,b", "a[]"})
    EXPECT_THROW(expand_node_list(list), ConfigError) << list;
}

}  // namespace
}  // namespace titan
