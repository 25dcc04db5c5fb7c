#include "lab/sweep/driver.h"

#include <gtest/gtest.h>

#include "support.h"

namespace titan::sweep {
namespace {

// A sweep whose driver died while its one trial ran.
class DiedDriver : public ::testing::Test {
 protected:
  DiedDriver() {
    folder_.write("job.toml", "[training]\nsteps = 4\n[checkpoint]\nenable = true\n");
    spec_ = read_spec(folder_.write("sweep.toml",
                                    "[sweep]\nbase = \"job.toml\"\nfolder = \"out\"\n[sweep.grid]\n"
                                    "\"optimizer.lr\" = [0.1]\n"));
    spec_.folder = folder_ / "out";  // a relative one would start at the working directory
    plan_ = make_plan(spec_);
    record_ = new_record(spec_, plan_, 1000.5);
    record_.trials[0].state = State::kRunning;
    record_.trials[0].starts = 1;
    std::filesystem::create_directories(step());
    write(trial() / "metrics.jsonl", "{\"step\":3,\"loss\":2.5}\n{\"step\":4,\"loss\":1.5}\n");
  }

  std::filesystem::path trial() const { return spec_.folder / plan_.trials[0].name; }
  std::filesystem::path step() const { return trial() / "checkpoint" / "step-4"; }
  static void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

  // Runs the next driver, which has nowhere to start a trial. Returns its view of the trial.
  Trial next_start() {
    Driver driver(spec_, plan_, record_, {});
    driver.run();
    return driver.record().trials[0];
  }

  TemporaryFolder folder_;
  SweepSpec spec_;
  Plan plan_;
  Record record_;
};

TEST_F(DiedDriver, RunsATrialAgainWhoseLastSaveDidNotEnd) {
  write(step() / "__0_0.distcp", "numbers");
  EXPECT_EQ(next_start().state, State::kPending);
}

// The trial's newest validation is of an earlier step: the pass after the last save is missing.
TEST_F(DiedDriver, RunsATrialAgainThatLacksTheValidationOfItsLastStep) {
  record_.objective.field = "validation.loss";
  write(step() / ".metadata", "end");
  write(trial() / "validation.jsonl", "{\"step\":1,\"loss\":0.5}\n");
  EXPECT_EQ(next_start().state, State::kPending);
  write(trial() / "validation.jsonl", "{\"step\":1,\"loss\":0.5}\n{\"step\":4,\"loss\":1.25}\n");
  const Trial done = next_start();
  EXPECT_EQ(done.state, State::kDone);
  EXPECT_EQ(done.objective, 1.25);
  EXPECT_EQ(done.objective_step, 4);
}

// Either format counts: checkpoint.last_save_in_hf writes the other one.
TEST_F(DiedDriver, CountsATrialAsDoneWhoseLastSaveEnded) {
  for (const char* last : {".metadata", "model.safetensors.index.json"}) {
    write(step() / last, "end");
    const Trial trial = next_start();
    EXPECT_EQ(trial.state, State::kDone) << last;
    EXPECT_EQ(trial.objective, 1.5) << last;
    std::filesystem::remove(step() / last);
  }
}

}  // namespace
}  // namespace titan::sweep
