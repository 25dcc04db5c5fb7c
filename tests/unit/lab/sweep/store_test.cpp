#include "lab/sweep/results/store.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  void make(const std::string& sweep, const std::string& job = "[optimizer]\neps = 1e-8\n") {
    folder_.write("job.toml", job);
    spec_ = read_spec(folder_.write("sweep.toml", "[sweep]\nbase = \"job.toml\"\nfolder = \"out\"\n" + sweep));
    plan_ = make_plan(spec_);
    record_ = new_record(spec_, plan_, 1000.5);
  }

  TemporaryFolder folder_;
  SweepSpec spec_;
  Plan plan_;
  Record record_;
};

const std::string kGrid =
    "[sweep.grid]\n\"optimizer.lr\" = [0.1, 1e-300]\n\"checkpoint.exclude_from_loading\" = [[\"model\", "
    "\"optimizer\"]]\n"
    "\"checkpoint.enable\" = [true]\n\"debug.seed\" = [3]\n\"model.name\" = [\"\\\"<é\"]\n";

TEST_F(StoreTest, ReadsBackWhatItWrote) {
  make(kGrid);
  Trial& trial = record_.trials[1];
  trial.state = State::kRunning;
  trial.starts = 2;
  trial.seconds = 0.1;
  trial.rung_objectives = {1.0 / 3, 2};
  trial.objective = 2;
  trial.error = "line \"x\"";
  record_.trials[0].objective = 1;
  save_record(folder_.path(), record_);
  const auto read = load_record(folder_.path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trials, record_.trials);
  EXPECT_EQ(read->config, record_.config);
  EXPECT_EQ(read->objective, record_.objective);
  EXPECT_EQ(read->started, 1000.5);
}

TEST_F(StoreTest, KeepsWhatIsNoNumberAndNoUtf8) {
  make(kGrid);
  record_.trials[0].rung_objectives = {std::nan("")};
  record_.trials[0].error = "bad \xff byte";
  save_record(folder_.path(), record_);
  const auto read = load_record(folder_.path());
  EXPECT_TRUE(std::isnan(read->trials[0].rung_objectives.at(0)));
  EXPECT_THAT(read->trials[0].error, HasSubstr("bad "));
}

TEST_F(StoreTest, AFolderWithoutASweepHasNoneAndADamagedOneSaysSo) {
  EXPECT_FALSE(load_record(folder_.path()));
  folder_.write("sweep.json", "{\"version\": 1");
  EXPECT_THAT(error_of([&] { load_record(folder_.path()); }), HasSubstr("sweep.json is damaged"));
  folder_.write("sweep.json", "{\"version\": 2}");
  EXPECT_THAT(error_of([&] { load_record(folder_.path()); }), HasSubstr("version 2, this program knows version 1"));
}

TEST_F(StoreTest, GoesOnWithTheSameSweepAndWithMoreTrials) {
  make("[sweep.random]\nnum_trials = 2\n\"optimizer.lr\" = {uniform = [0, 1]}\n");
  Record saved = record_;
  saved.trials[1].state = State::kDone;
  make("[sweep.random]\nnum_trials = 5\n\"optimizer.lr\" = {uniform = [0, 1]}\n");
  take_on(saved, record_, plan_, "out");
  EXPECT_EQ(record_.trials.size(), 5u);
  EXPECT_EQ(record_.trials[1].state, State::kDone);
  EXPECT_EQ(record_.trials[2].state, State::kPending);
}

// Trials are identified by their values: existing ones keep their names, numbers and results.
TEST_F(StoreTest, TakesValuesThatAreAddedAnywhere) {
  const std::string two = "[sweep.grid]\n\"optimizer.lr\" = [1, 3]\n\"optimizer.eps\" = [0.1, 0.2]\n";
  make(two);
  Record saved = record_;
  saved.trials[2].objective = 0.5;
  saved.trials[2].state = State::kDone;
  make("[sweep.grid]\n\"optimizer.lr\" = [1, 2, 3]\n\"optimizer.eps\" = [0.1, 0.15, 0.2]\n");
  take_on(saved, record_, plan_, "out");
  ASSERT_EQ(record_.trials.size(), 9u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record_.trials[i].name, saved.trials[i].name) << i;
    EXPECT_EQ(record_.trials[i].values, saved.trials[i].values) << i;
    EXPECT_EQ(record_.trials[i].state, saved.trials[i].state) << i;
    EXPECT_EQ(plan_.trials[i].values, saved.trials[i].values) << i;
  }
  EXPECT_EQ(record_.trials[2].objective, 0.5);
  std::set<std::string> names;
  for (std::size_t i = 0; i < 9; ++i) {
    names.insert(record_.trials[i].name);
    EXPECT_EQ(plan_.trials[i].name, record_.trials[i].name);
    EXPECT_EQ(plan_.trials[i].config.job.dump_folder, "out/" + record_.trials[i].name);
    EXPECT_EQ(plan_.trials[i].config.optimizer.lr, std::get<double>(record_.trials[i].values[0].value));
  }
  EXPECT_EQ(names.size(), 9u);
  EXPECT_EQ(record_.trials[4].name, "trial-004-lr1-eps0.15");
  // Once more, from the state that is saved now.
  const Record grown = record_;
  make("[sweep.grid]\n\"optimizer.lr\" = [1, 2, 3]\n\"optimizer.eps\" = [0.1, 0.15, 0.2]\n");
  take_on(grown, record_, plan_, "out");
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(record_.trials[i].name, grown.trials[i].name);
  // An additional key makes another sweep.
  make("[sweep.grid]\n\"optimizer.lr\" = [1, 3]\n\"optimizer.eps\" = [0.1, 0.2]\n\"optimizer.beta1\" = [0.8]\n");
  EXPECT_THAT(error_of([&] { take_on(saved, record_, plan_, "out"); }), HasSubstr("which no trial is any more"));
}

constexpr const char* kThreeRates = "[sweep.grid]\n\"optimizer.lr\" = [1, 2, 3]\n";

std::string job_of(int steps, const std::string& more = "last_save_model_only = false\n") {
  return "[metrics]\nlog_freq = 1\n[training]\nsteps = " + std::to_string(steps) +
         "\n[lr_scheduler]\ntotal_steps = 90\n[checkpoint]\nenable = true\n" + more;
}

TEST_F(StoreTest, TrainsDoneTrialsOnWhereStepsWereRaised) {
  make(kThreeRates, job_of(18));
  Record saved = record_;
  for (Trial& trial : saved.trials) trial.state = State::kDone, trial.objective = 2, trial.rung_objectives = {2};
  saved.trials[1].objective = saved.trials[1].rung_objectives[0] = std::nan("");  // diverged
  saved.trials[2].state = State::kFailed;
  make(kThreeRates, job_of(24));
  take_on(saved, record_, plan_, "out");
  EXPECT_EQ(record_.trials[0].state, State::kPending);
  EXPECT_THAT(record_.trials[0].rung_objectives, testing::IsEmpty());
  EXPECT_EQ(record_.trials[1].state, State::kDone);
  EXPECT_EQ(record_.trials[2].state, State::kFailed);
  const auto refusal = [&](const std::string& job) {
    make(kThreeRates, job);
    return error_of([&] { take_on(saved, record_, plan_, "out"); });
  };
  EXPECT_EQ(refusal(job_of(18)), "no error");
  EXPECT_EQ(record_.trials[0].state, State::kDone);
  EXPECT_THAT(refusal(job_of(12)),
              HasSubstr("training.steps of the job was 18, is 12: it may be raised, and not lowered"));
  EXPECT_THAT(refusal(job_of(24, "")), HasSubstr("hold weights alone"));
  EXPECT_THAT(refusal("[training]\nsteps = 24\n"), HasSubstr("lr_scheduler.total_steps"));
}

// If trials differ in their steps, another number of steps is a new value.
TEST_F(StoreTest, TrialsThatDifferInStepsStayDone) {
  make("[sweep.grid]\n\"training.steps\" = [20, 30]\n", job_of(18));
  Record saved = record_;
  for (Trial& trial : saved.trials) trial.state = State::kDone, trial.objective = 2, trial.rung_objectives = {2};
  make("[sweep.grid]\n\"training.steps\" = [40, 20, 30]\n", job_of(18));
  take_on(saved, record_, plan_, "out");
  EXPECT_EQ(record_.trials[0].state, State::kDone);
  EXPECT_EQ(record_.trials[1].state, State::kDone);
  EXPECT_EQ(record_.trials[2].state, State::kPending);
}

TEST_F(StoreTest, AddsRungsBehindTheLastOne) {
  const std::string asha = std::string(kThreeRates) + "[sweep.asha]\nmin_steps = 6\nreduction_factor = 3\n";
  make(asha, job_of(18));
  Record saved = record_;
  EXPECT_THAT(saved.rungs, testing::ElementsAre(6, 18));
  for (Trial& trial : saved.trials) trial.state = State::kPaused, trial.objective = 2, trial.rung_objectives = {2};
  saved.trials[0].state = State::kDone;
  saved.trials[0].rung_objectives = {2, 1};
  make(asha, job_of(24));
  take_on(saved, record_, plan_, "out");
  EXPECT_THAT(record_.rungs, testing::ElementsAre(6, 18, 24));
  EXPECT_EQ(record_.trials[0].state, State::kPaused);
  EXPECT_THAT(record_.trials[0].rung_objectives, testing::ElementsAre(2, 1));
  make(asha, job_of(20));
  saved.rungs = {6, 17};
  EXPECT_THAT(
      error_of([&] { take_on(saved, record_, plan_, "out"); }),
      HasSubstr("its rungs were 6, 17 by 3 and are 6, 18, 20 by 3, because sweep.asha or training.steps changed"));
}

TEST_F(StoreTest, RefusesAnotherSweepAndSaysWhatDiffers) {
  make("[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n");
  const Record saved = record_;
  const auto refusal = [&](const std::string& sweep, const std::string& job = "[optimizer]\neps = 1e-8\n") {
    make(sweep, job);
    return error_of([&] { take_on(saved, record_, plan_, "out"); });
  };
  EXPECT_EQ(refusal("[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n"), "no error");
  EXPECT_THAT(refusal("[sweep.grid]\n\"optimizer.lr\" = [1, 3]\n"),
              HasSubstr("trial 1 was optimizer.lr = 2.0, which no trial is any more"));
  EXPECT_THAT(refusal("[sweep.grid]\n\"optimizer.lr\" = [1]\n"), HasSubstr("trial 1 was optimizer.lr = 2.0, which"));
  EXPECT_THAT(refusal("reduction = \"min\"\n[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n"),
              HasSubstr("it looked for the lowest last loss, and now for the lowest min loss"));
  EXPECT_THAT(refusal("[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n", "[optimizer]\neps = 1e-6\n"),
              HasSubstr("optimizer.eps of the job was 1e-08, is 1e-06"));
}

TEST_F(StoreTest, OneDriverAtATime) {
  {
    const SweepLock lock(folder_.path());
    EXPECT_THAT(error_of([&] { const SweepLock second(folder_.path()); }),
                HasSubstr("another titan-train sweep runs in"));
  }
  EXPECT_EQ(error_of([&] { const SweepLock lock(folder_.path()); }), "no error");
}

}  // namespace
}  // namespace titan::sweep
