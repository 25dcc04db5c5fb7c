#include "lab/sweep/plan/plan.h"

#include <gmock/gmock.h>

#include <cmath>

#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts_of(const SweepSpec& spec) {
  std::vector<std::string> out;
  for (const auto& values : expand(spec)) {
    std::string text;
    for (const auto& [key, value] : values) text += (text.empty() ? "" : " ") + short_text(value);
    out.push_back(text);
  }
  return out;
}

TEST(Expand, CombinesBlocksAsAProductWithTheGridFastest) {
  SweepSpec spec;
  spec.grid = {{"optimizer.lr", {1.0, 2.0}}, {"training.steps", {std::int64_t{5}, std::int64_t{6}}}};
  EXPECT_THAT(texts_of(spec), ElementsAre("1 5", "1 6", "2 5", "2 6"));
  spec.grid.pop_back();
  spec.zip = {{"training.seq_len", {std::int64_t{8}, std::int64_t{16}}}, {"optimizer.eps", {0.1, 0.2}}};
  EXPECT_THAT(texts_of(spec), ElementsAre("8 0.1 1", "8 0.1 2", "16 0.2 1", "16 0.2 2"));
  spec.list = {{}, {{"model.name", std::string("llama2")}}};
  EXPECT_THAT(texts_of(spec), ElementsAre("8 0.1 1", "8 0.1 2", "16 0.2 1", "16 0.2 2", "llama2 8 0.1 1",
                                          "llama2 8 0.1 2", "llama2 16 0.2 1", "llama2 16 0.2 2"));
}

TEST(Expand, DrawsAreTheSlowestSoThatMoreOfThemComeLast) {
  SweepSpec spec;
  spec.num_trials = 1;
  spec.random = {{"optimizer.lr", Draw::Kind::kUniform, 0, 1, {}}};
  spec.list = {{{"model.name", std::string("a")}}, {{"model.name", std::string("b")}}};
  const auto one = expand(spec);
  spec.num_trials = 3;
  const auto three = expand(spec);
  ASSERT_EQ(three.size(), 6u);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), three.begin()));
}

SweepSpec random_spec(std::int64_t seed, std::int64_t num_trials) {
  SweepSpec spec;
  spec.seed = seed;
  spec.num_trials = num_trials;
  spec.random = {{"optimizer.lr", Draw::Kind::kLogUniform, 1e-4, 1e-1, {}},
                 {"optimizer.beta1", Draw::Kind::kUniform, 0.5, 0.9, {}},
                 {"lr_scheduler.warmup_steps", Draw::Kind::kIntUniform, 0, 3, {}},
                 {"optimizer.name", Draw::Kind::kChoice, 0, 0, {std::string("a"), std::string("b")}}};
  return spec;
}

TEST(Expand, DrawsFollowFromSeedKeyAndNumberAlone) {
  const auto first = expand(random_spec(1, 10));
  EXPECT_EQ(first, expand(random_spec(1, 10)));
  EXPECT_NE(first, expand(random_spec(2, 10)));
  auto more = random_spec(1, 20);
  std::swap(more.random[0], more.random[1]);
  const auto longer = expand(more);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i][0], longer[i][1]);
  // A recorded value: the same file must give the same trials on any machine and with any compiler.
  EXPECT_EQ(to_toml_value(first[0][0].value), "0.0886952");
}

TEST(Expand, DrawsCoverTheirRangesEvenly) {
  constexpr int kTrials = 4000;
  std::vector<int> decades(3), integers(4), choices(2);
  double sum = 0;
  for (const auto& values : expand(random_spec(5, kTrials))) {
    const double lr = std::get<double>(values[0].value);
    ASSERT_GE(lr, 1e-4);
    ASSERT_LE(lr, 1e-1);
    ++decades[static_cast<std::size_t>(std::min(2.0, std::floor(std::log10(lr) + 4)))];
    sum += std::get<double>(values[1].value);
    ++integers.at(static_cast<std::size_t>(std::get<std::int64_t>(values[2].value)));
    ++choices[std::get<std::string>(values[3].value) == "b"];
  }
  // Counts are binomial with a standard deviation below sqrt(n / 4) = 32, and the mean's is 0.4 / sqrt(12 n) =
  // 0.0018: five deviations are allowed.
  for (const int count : decades) EXPECT_NEAR(count, kTrials / 3.0, 160);
  for (const int count : integers) EXPECT_NEAR(count, kTrials / 4.0, 160);
  for (const int count : choices) EXPECT_NEAR(count, kTrials / 2.0, 160);
  EXPECT_NEAR(sum / kTrials, 0.7, 0.009);
}

TEST(Expand, RefusesMoreTrialsThanAnyoneWants) {
  EXPECT_EQ(expand(random_spec(1, kMostTrials)).size(), static_cast<std::size_t>(kMostTrials));
  for (const std::int64_t number : {kMostTrials + 1, INT64_MAX})
    EXPECT_THAT(error_of([&] { expand(random_spec(1, number)); }), HasSubstr("at most 10000 are taken"));
}

TEST(RungSteps, AreGeometricAndEndWithTheWholeTraining) {
  EXPECT_THAT(rung_steps({10, 3, {}}, 100), ElementsAre(10, 30, 90, 100));
  EXPECT_THAT(rung_steps({10, 3, {}}, 90), ElementsAre(10, 30, 90));
  EXPECT_THAT(rung_steps({2, INT64_MAX, {}}, INT64_MAX), ElementsAre(2, INT64_MAX));
}

TEST(ShortKeys, AreAsShortAsTheyCanBe) {
  EXPECT_THAT(short_keys({"optimizer.lr", "parallelism.data_parallel_shard_degree", "training.local_batch_size"}),
              ElementsAre("lr", "shard", "local_batch"));
  EXPECT_THAT(short_keys({"training.steps", "validation.steps", "training.seq_len"}),
              ElementsAre("training.steps", "validation.steps", "seq_len"));
}

class PlanTest : public ::testing::Test {
 protected:
  Plan plan(const std::string& sweep,
            const std::string& job = "[training]\nsteps = 100\n[checkpoint]\nenable = true\n") {
    folder_.write("job.toml", job);
    const auto file = folder_.write("sweep.toml", "[sweep]\nbase = \"job.toml\"\nfolder = \"out\"\n" + sweep);
    spec_ = read_spec(file);
    return make_plan(spec_);
  }

  TemporaryFolder folder_;
  SweepSpec spec_;
};

TEST_F(PlanTest, GivesEveryTrialItsFolderAndValues) {
  const Plan made = plan("[sweep.grid]\n\"optimizer.lr\" = [0.5, 1e-5]\n");
  EXPECT_EQ(made.trials[1].name, "trial-001-lr1e-05");
  EXPECT_EQ(made.trials[1].config.job.dump_folder, "out/trial-001-lr1e-05");
  EXPECT_EQ(made.trials[0].config.optimizer.lr, 0.5);
  EXPECT_EQ(made.trials[0].config.training.steps, 100);
  EXPECT_FALSE(made.trials[0].config.job.config_file);
}

TEST_F(PlanTest, NamesOfFoldersAreShortAndPlain) {
  const Plan made = plan("[[sweep.list]]\n\"training.dataset_path\" = \"/a b/../c$(d)\"\n\"job.description\" = \"" +
                         std::string(100, 'x') + "\"\n");
  EXPECT_EQ(made.trials[0].name, "trial-000-dataset_path_a_b_.._c__d_");
}

TEST_F(PlanTest, HalvingKeepsOneScheduleAndWholeCheckpoints) {
  const Plan made = plan("[sweep.grid]\n\"optimizer.lr\" = [1]\n[sweep.asha]\nmin_steps = 10\nmax_steps = 50\n");
  EXPECT_THAT(made.rungs, ElementsAre(10, 30, 50));
  EXPECT_EQ(made.trials[0].config.training.steps, 50);
  EXPECT_EQ(made.trials[0].config.lr_scheduler.total_steps, 50);
  EXPECT_FALSE(made.trials[0].config.checkpoint.last_save_model_only);
}

TEST_F(PlanTest, TrialsDoNotSaveInOneFolder) {
  const std::string grid = "[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n", enable = "[checkpoint]\nenable = true\n";
  const auto fault = [&](const std::string& sweep, const std::string& job) {
    return error_of([&] { plan(sweep, job); });
  };
  for (const std::string folder : {"/shared", "../shared"})
    EXPECT_THAT(
        fault(grid, enable + "folder = \"" + folder + "\"\n"),
        AllOf(HasSubstr("checkpoint.folder = \"" + folder + "\" is "), HasSubstr("in trial-000 and in trial-001")));
  const std::string two = "[sweep.zip]\n\"optimizer.lr\" = [1, 2]\n\"checkpoint.folder\" = [";
  const std::string shared = folder_.path() / "shared", link = folder_.path() / "link";
  std::filesystem::create_directory(shared);
  std::filesystem::create_directory_symlink(shared, link);
  for (const std::string& other : {shared + "/", shared + "/../shared", link})
    EXPECT_THAT(fault(two + "\"" + shared + "\", \"" + other + "\"]\n", enable),
                HasSubstr("in trial-000 and in trial-001"));
  EXPECT_NO_THROW(plan(grid, "[checkpoint]\nfolder = \"/shared\"\n")) << "nothing is saved";
  EXPECT_NO_THROW(plan(two + "\"/a\", \"/b\"]\n", enable));
}

TEST_F(PlanTest, SaysAllFaultsOfAllTrialsOnce) {
  const auto fault = error_of([&] {
    plan(
        "nproc = 2\n[sweep.grid]\n\"training.seq_len\" = [8, 9]\n\"parallelism.data_parallel_shard_degree\" = [2, "
        "4]\n");
  });
  EXPECT_THAT(fault, HasSubstr("in trial 1 (training.seq_len = 8, parallelism.data_parallel_shard_degree = 4):\nerror: "
                               "the degrees must multiply"));
  EXPECT_THAT(fault, HasSubstr("in trial 2 (training.seq_len = 9, parallelism.data_parallel_shard_degree = 2):\nerror: "
                               "training.seq_len (9)"));
  EXPECT_THAT(fault, HasSubstr("in trial 3 (training.seq_len = 9, parallelism.data_parallel_shard_degree = 4):\nerror: "
                               "training.seq_len (9)"));
  EXPECT_THAT(
      error_of([&] { plan("[sweep.grid]\n\"training.seq_len\" = [8, 9]\n\"optimizer.lr\" = [1, 2]\n"); }),
      HasSubstr("in trials 2, 3 (the first: training.seq_len = 9, optimizer.lr = 1.0):\nerror: training.seq_len (9)"));
  EXPECT_THAT(error_of([&] { plan("[sweep.grid]\n\"optimizer.lr\" = [1, 2]\n", "[training]\nstepz = 1\n"); }),
              HasSubstr("in every trial:\n"));
}

TEST_F(PlanTest, RefusesWhatTheSweepNeedsAndTheJobLacks) {
  const std::string grid = "[sweep.grid]\n\"optimizer.lr\" = [1]\n";
  EXPECT_THAT(error_of([&] { plan(grid + "[sweep.asha]\nmin_steps = 10\n", "[training]\nsteps = 100\n"); }),
              HasSubstr("needs checkpoint.enable = true"));
  EXPECT_THAT(error_of([&] { plan(grid + "[sweep.asha]\nmin_steps = 100\n"); }),
              HasSubstr("sweep.asha.min_steps (100)"));
  EXPECT_THAT(error_of([&] { plan("objective = \"validation.loss\"\n" + grid); }),
              HasSubstr("needs validation.enable = true"));
}

TEST_F(PlanTest, RefusesRungsWhoseLossIsNotLogged) {
  const std::string asha = "[sweep.grid]\n\"optimizer.lr\" = [1]\n[sweep.asha]\nmin_steps = 6\nmax_steps = 54\n";
  const std::string job = "[training]\nsteps = 54\n[checkpoint]\nenable = true\n[metrics]\nlog_freq = ";
  EXPECT_THAT(error_of([&] { plan(asha, job + "4\n"); }),
              HasSubstr("judges trials after step 6, which has no row in metrics.jsonl: metrics.log_freq = 4. Set "
                        "metrics.log_freq = 3"));
  EXPECT_EQ(plan(asha, job + "3\n").rungs.size(), 3u);
}

constexpr const char* kHeldOut =
    "[training]\nsteps = 54\nseq_len = 64\n[checkpoint]\nenable = true\n[metrics]\nlog_freq = 10\n[validation]\nenable "
    "= "
    "true\nfreq = 10\nseq_len = 64\ndataset_path = \"a\"\nsteps = ";

// Trials validate at rungs whatever validation.freq and metrics.log_freq are.
TEST_F(PlanTest, ValidatesAtRungs) {
  const Plan made =
      plan("objective = \"validation.loss\"\n[sweep.grid]\n\"optimizer.lr\" = [1]\n[sweep.asha]\nmin_steps = 6\n",
           std::string(kHeldOut) + "-1\n");
  EXPECT_TRUE(made.trials[0].config.validation.at_last_step);
  EXPECT_EQ(made.held_out.at("validation.dataset_path"), "a");
}

TEST_F(PlanTest, IsJudgedByAScoreOfATask) {
  const std::string job =
      "[training]\nsteps = 9\n[evaluation]\nat_last_step = false\ntasks = [\"arc a\", \"x=text b\"]\n";
  const auto made = [&](const std::string& field, const std::string& keys = "\"optimizer.lr\" = [1, 2]\n") {
    return plan("objective = \"evaluation." + field + "\"\n[sweep.grid]\n" + keys, job);
  };
  EXPECT_TRUE(made("arc/acc").trials[0].config.evaluation.at_last_step);
  EXPECT_EQ(made("x/bits_per_byte").held_out.at("evaluation.tasks"), "arc a, x=text b");
  EXPECT_TRUE(objective_named("evaluation.arc/acc_norm").maximize);
  EXPECT_FALSE(objective_named("evaluation.x/word_perplexity").maximize);
  EXPECT_THAT(error_of([&] { made("x/acc"); }), HasSubstr("is not a score of kind text, which has word_perplexity"));
  EXPECT_THAT(error_of([&] { made("mmlu/acc"); }), HasSubstr("does not have; it has arc, x"));
  EXPECT_THAT(error_of([&] { objective_named("evaluation.arc/accuracy"); }), HasSubstr("evaluation.TASK/SCORE"));
  EXPECT_THAT(error_of([&] { made("arc/acc", "\"evaluation.limit\" = [3, 4]\n"); }),
              HasSubstr("trials cannot be compared by evaluation.arc/acc: evaluation.limit is 4 in trial-001"));
  const std::string examples = "[evaluation]\ntasks = [\"arc a fewshot=b\"]\nnum_fewshot = 3\n";
  EXPECT_THAT(error_of([&] {
                plan("objective = \"evaluation.arc/acc\"\n[sweep.grid]\n\"evaluation.num_fewshot\" = [3, 4]\n",
                     examples);
              }),
              HasSubstr("evaluation.num_fewshot is 4 in trial-001"));
}

TEST_F(PlanTest, RefusesTrialsThatLookAtDifferentTokens) {
  const std::string objective = "objective = \"validation.loss\"\nnproc = 2\n[sweep.grid]\n";
  const auto fault = [&](const std::string& keys, const std::string& steps) {
    return error_of([&] { plan(objective + keys, kHeldOut + steps); });
  };
  EXPECT_THAT(
      fault("\"validation.seq_len\" = [32, 64]\n", "-1\n"),
      HasSubstr("trials cannot be compared by validation.loss: validation.seq_len is 64 in trial-001, and 32 in "
                "trial-000"));
  const std::string batch = "\"validation.local_batch_size\" = [1, 2]\n";
  EXPECT_THAT(fault(batch, "4\n"), HasSubstr("validation.local_batch_size is 2 in trial-001"));
  EXPECT_EQ(fault(batch, "-1\n"), "no error");  // the full set, whatever its batches are
  const std::string tensor = "\"parallelism.tensor_parallel_degree\" = [1, 2]\n";
  EXPECT_THAT(fault(tensor, "4\n"), HasSubstr("or set validation.steps = -1"));
  EXPECT_EQ(fault(tensor, "-1\n"), "no error");
  EXPECT_THAT(fault("\"validation.steps\" = [-1, 4]\n", "-1\n"), HasSubstr("validation.steps is 4 in trial-001"));
}

}  // namespace
}  // namespace titan::sweep
