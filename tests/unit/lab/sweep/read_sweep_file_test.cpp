#include <gmock/gmock.h>

#include "lab/sweep/plan/sweep_spec.h"
#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kHead = "[sweep]\nbase = \"job.toml\"\n";

std::string fault_of(const std::string& text) {
  return error_of([&] { read_spec_text(text, "lr.toml"); });
}

TEST(ReadSpec, ReadsEveryKey) {
  const auto spec = read_spec_text(R"(
[sweep]
name = "n"
base = "jobs/job.toml"
folder = "out"
objective = "validation.loss"
reduction = "min"
direction = "max"
window = 3
max_parallel = 2
nproc = 4
cores = 5
gpus = 1
seed = 7
stop_on_failure = true
retries = 2
timeout_minutes = 1.5
launcher = "srun"
[sweep.grid]
"optimizer.lr" = [1, 2e-3]
training.seq_len = [32, 64]
[sweep.zip]
"training.local_batch_size" = [1, 2]
"optimizer.name" = ["AdamW", "AdamW"]
[[sweep.list]]
"checkpoint.enable" = true
[[sweep.list]]
[sweep.random]
num_trials = 4
"optimizer.beta1" = {uniform = [0.8, 0.9]}
"optimizer.eps" = {log_uniform = [1e-9, 1e-6]}
"lr_scheduler.warmup_steps" = {int_uniform = [0, 9]}
"lr_scheduler.decay_type" = {choice = ["linear", "cosine"]}
)",
                                   "sweeps/lr.toml");
  EXPECT_EQ(spec.base, "sweeps/jobs/job.toml");
  EXPECT_EQ(spec.folder, "out");
  EXPECT_EQ(spec.objective, (Objective{"validation.loss", "min", 3, true}));
  EXPECT_EQ(spec.max_parallel, 2);
  EXPECT_EQ(spec.cores, 5);
  EXPECT_EQ(spec.timeout_minutes, 1.5);
  EXPECT_EQ(swept_keys(spec),
            (std::vector<std::string>{"optimizer.lr", "training.seq_len", "training.local_batch_size", "optimizer.name",
                                      "checkpoint.enable", "optimizer.beta1", "optimizer.eps",
                                      "lr_scheduler.warmup_steps", "lr_scheduler.decay_type"}));
  EXPECT_EQ(spec.grid[0].values, (std::vector<config::FieldValue>{1.0, 2e-3}));
  EXPECT_EQ(spec.list.size(), 2u);
  EXPECT_EQ(spec.random[2].kind, Draw::Kind::kIntUniform);
  EXPECT_EQ(spec.random[3].choices.size(), 2u);
}

TEST(ReadSpec, NamesAndDirectionsFollowFromTheRest) {
  const auto spec =
      read_spec_text(kHead + "objective = \"tokens_per_second\"\n[sweep.grid]\n\"optimizer.lr\" = [1]\n", "a/lr.toml");
  EXPECT_EQ(spec.name, "lr");
  EXPECT_EQ(spec.folder, "outputs/sweeps/lr");
  EXPECT_TRUE(spec.objective.maximize);
}

TEST(ReadSpec, AJobThatIsMissingIsSaidAtItsPlace) {
  const TemporaryFolder folder;
  const auto file =
      folder.write("sw.toml", "[sweep]\nbase = \"jobs/nope.toml\"\n[sweep.grid]\n\"optimizer.lr\" = [1]\n");
  EXPECT_THAT(error_of([&] { read_spec(file); }),
              StartsWith(file.string() + ":2:8: error: sweep.base = \"jobs/nope.toml\": no such file (looked in " +
                         (folder.path() / "jobs").string() + ")\n"));
}

TEST(ReadSpec, PointsAtEveryFaultAtOnce) {
  const auto fault = fault_of(
      "[sweep]\nbase = \"job.toml\"\nobjektive = \"loss\"\nnproc = 0\n[sweep.grid]\n\"optimizer.lrr\" = [1]\n"
      "\"training.steps\" = [10, 0]\n");
  EXPECT_THAT(fault, StartsWith("lr.toml:3:1: error: unknown key sweep.objektive; did you mean sweep.objective?\n"
                                "   3 | objektive = \"loss\"\n     | ^\n"));
  EXPECT_THAT(fault,
              HasSubstr("lr.toml:4:9: error: sweep.nproc: expected an integer, at least 1; found the integer 0"));
  EXPECT_THAT(fault,
              HasSubstr("lr.toml:6:1: error: unknown key optimizer.lrr of a job; did you mean \"optimizer.lr\"?"));
  EXPECT_THAT(fault, HasSubstr("lr.toml:7:25: error: training.steps: expected an integer, at least 1; found 0"));
  EXPECT_THAT(fault, HasSubstr("\n4 errors"));
}

struct BadSweep {
  const char* text;
  const char* message;
};

class BadSweeps : public ::testing::TestWithParam<BadSweep> {};

TEST_P(BadSweeps, AreRefused) { EXPECT_THAT(fault_of(kHead + GetParam().text), HasSubstr(GetParam().message)); }

INSTANTIATE_TEST_SUITE_P(
    ReadSpec, BadSweeps,
    ::testing::Values(
        BadSweep{"", "nothing varies: add [sweep.grid]"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = 3\n",
                 "optimizer.lr: expected a list of values, [A, B, ...]; found the integer 3"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = []\n", "found an empty one"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = [1, \"x\"]\n",
                 "expected a number, at least 0; found the string \"x\""},
        BadSweep{"[sweep.grid]\n\"training.steps\" = [1, \"2\"]\n", "found the string \"2\"; write 2"},
        BadSweep{"[sweep.grid]\n\"model.converters\" = [[1]]\n", "found a list with an integer in it"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = [1, 1.0]\n", "1.0 stands here twice"},
        BadSweep{"[sweep.grid]\n\"job.dump_folder\" = [\"x\"]\n", "job.dump_folder: the sweep sets it for every trial"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = [1]\n[sweep.random]\nnum_trials = 2\n\"optimizer.lr\" = {uniform = "
                 "[0, 1]}\n",
                 "optimizer.lr stands in [sweep.grid] and in [sweep.random]; keep one"},
        BadSweep{"[sweep.zip]\n\"optimizer.lr\" = [1, 2]\n\"training.steps\" = [3]\n",
                 "training.steps has 1 values, optimizer.lr has 2"},
        BadSweep{"[sweep.random]\n\"optimizer.lr\" = {uniform = [0, 1]}\n", "sweep.random.num_trials is missing"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"optimizer.lr\" = {log_uniform = [0, 1]}\n",
                 "begins above 0; found 0.0"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"optimizer.lr\" = {uniform = [1, 1]}\n", "LOW below HIGH"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"lr_scheduler.decay_ratio\" = {uniform = [\"None\", 1]}\n",
                 "expected a number, at least 0 and at most 1; found the string \"None\""},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"training.steps\" = {uniform = [1, 9]}\n",
                 "is an integer; draw it with int_uniform"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"training.steps\" = {int_uniform = [0, 9]}\n",
                 "at least 1; found 0"},
        BadSweep{
            "[sweep.random]\nnum_trials = 2\n\"debug.seed\" = {int_uniform = [0, 9007199254740993]}\n",
            "int_uniform draws numbers between -2^53 and 2^53; found the integer 0 and the integer 9007199254740993"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"optimizer.lr\" = {log_uniform = [1e-300, 1e300]}\n",
                 "log_uniform needs a HIGH of at most 1e308 times LOW; found the number 1e-300 and the number 1e+300"},
        BadSweep{"[sweep.random]\nnum_trials = 2\n\"training.steps\" = {normal = [0, 9]}\n", "found normal"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = [1]\n[sweep.asha]\nreduction_factor = 1\n",
                 "at least 2; found the integer 1"},
        BadSweep{"[sweep.grid]\n\"training.steps\" = [1]\n[sweep.asha]\nmin_steps = 3\n",
                 "lr.toml:4:1: error: training.steps cannot vary"},
        BadSweep{"objective = \"los\"\n[sweep.grid]\n\"optimizer.lr\" = [1]\n", "did you mean \"loss\"?"},
        BadSweep{"[sweep.grid]\n\"optimizer.lr\" = [1]\n[training]\nsteps = 3\n",
                 "unknown key training; a sweep's file has [sweep]"}));

TEST(ReadSpec, NeedsABase) {
  EXPECT_THAT(fault_of("[sweep]\n[sweep.grid]\n\"optimizer.lr\" = [1]\n"), HasSubstr("sweep.base is missing"));
  EXPECT_THAT(fault_of("steps = 3\n"), HasSubstr("expected a table [sweep]"));
}

}  // namespace
}  // namespace titan::sweep
