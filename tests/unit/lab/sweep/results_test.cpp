#include "lab/sweep/results/results.h"

#include <gmock/gmock.h>

#include <cmath>

#include "lab/sweep/report/sweep_report.h"
#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Trial done(std::vector<Assignment> values, double objective) {
  Trial trial;
  trial.name = "trial";
  trial.values = std::move(values);
  trial.state = State::kDone;
  trial.objective = objective;
  trial.rung_objectives = {objective};
  return trial;
}

TEST(Ranking, LaterRungsFirstThenObjectivesThenFailures) {
  Record record;
  record.rungs = {10, 20};
  record.trials = {done({}, 3), done({}, kNaN), done({}, 2), done({}, 9), Trial{}};
  record.trials[3].rung_objectives = {9, 9};
  record.trials[0].state = State::kFailed;
  EXPECT_THAT(ranking(record), ElementsAre(3, 2, 1, 4, 0));
  record.objective.maximize = true;
  record.trials[0].state = State::kDone;
  EXPECT_THAT(ranking(record), ElementsAre(3, 0, 2, 1, 4));
}

TEST(Influences, FindAnOptimumInTheMiddle) {
  Record record;
  record.keys = {"optimizer.lr", "debug.seed"};
  // The objective depends on the learning rate alone, and not monotonically; the seed adds a little noise.
  for (const double lr : {1.0, 2.0, 3.0})
    for (const std::int64_t seed : {0, 1, 2, 3})
      record.trials.push_back(done({{"optimizer.lr", lr}, {"debug.seed", seed}},
                                   std::abs(lr - 2) + 0.01 * lr + 0.001 * static_cast<double>(seed)));
  const auto found = influences(record);
  // Ranks 0 to 11: by learning rate they are {4..7}, {0..3}, {8..11}, so that 3 * 5 of 143 are within groups, and 1 -
  // 15 / 143 * 11 / 9 = 0.8718. By seed, groups of three with ranks s, s + 4, s + 8 leave 4 * 32 within: 1 - 128 /
  // 143 * 11 / 8 is below 0.
  EXPECT_NEAR(*found[0].explained, 0.8718, 1e-4);
  EXPECT_EQ(found[0].num_values, 3u);
  EXPECT_EQ(found[1].explained, 0.0);
}

TEST(Influences, GroupManyValuesAndGiveTheTrend) {
  Record record;
  record.keys = {"optimizer.lr"};
  for (int i = 0; i < 16; ++i) record.trials.push_back(done({{"optimizer.lr", 1.0 + i}}, -i));
  auto found = influences(record);
  EXPECT_EQ(found[0].num_values, 4u);
  const double explained = *found[0].explained;
  EXPECT_GT(explained, 0.9);
  EXPECT_DOUBLE_EQ(*found[0].trend, -1);
  record.objective.maximize = true;
  EXPECT_DOUBLE_EQ(*influences(record)[0].trend, -1);
  record.trials[0].rung_objectives = {kNaN};  // the best is now the worst
  EXPECT_LT(*influences(record)[0].explained, explained);
}

// Six draws of two keys are six pairs: one key's value determines the other's, whatever the grid adds.
TEST(Influences, DoNotCreditWhatTheDrawsTiedTogether) {
  Record record;
  record.keys = {"optimizer.lr", "lr_scheduler.warmup_steps", "training.local_batch_size"};
  for (int draw = 0; draw < 6; ++draw)
    for (const std::int64_t batch : {1, 2})
      record.trials.push_back(done({{"optimizer.lr", 0.1 * (1 + draw * 5 % 6)},
                                    {"lr_scheduler.warmup_steps", std::int64_t{draw / 2}},
                                    {"training.local_batch_size", batch}},
                                   draw + 0.1 * static_cast<double>(batch)));
  const auto found = influences(record);
  EXPECT_THAT(found[0].tied_to, ::testing::ElementsAre("lr_scheduler.warmup_steps"));
  EXPECT_THAT(found[1].tied_to, ::testing::ElementsAre("optimizer.lr"));
  EXPECT_FALSE(found[0].explained || found[1].explained);
  EXPECT_TRUE(found[2].tied_to.empty() && found[2].explained);
  // Enough draws tell them apart.
  record.trials.clear();
  for (int draw = 0; draw < 24; ++draw)
    record.trials.push_back(
        done({{"optimizer.lr", 0.1 * (1 + draw)}, {"lr_scheduler.warmup_steps", std::int64_t{draw * 7 % 24}}}, draw));
  record.keys.pop_back();
  EXPECT_TRUE(influences(record)[0].tied_to.empty());
  EXPECT_GT(*influences(record)[0].explained, 0.9);
}

TEST(Influences, AreSilentWhereThereIsNothingToTell) {
  Record record;
  record.keys = {"optimizer.lr"};
  record.trials = {done({{"optimizer.lr", 1.0}}, 1), done({{"optimizer.lr", 2.0}}, 2)};
  EXPECT_FALSE(influences(record)[0].explained);
  record.trials.push_back(done({{"optimizer.lr", 3.0}}, 3));
  EXPECT_FALSE(influences(record)[0].explained);
}

TEST(Csv, QuotesWhatMustBeQuoted) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
  Record record;
  record.keys = {"model.name", "optimizer.lr"};
  record.trials = {done({{"model.name", std::string("a,b")}, {"optimizer.lr", 0.1}}, 1.0 / 3)};
  record.trials[0].error = "no \"x\"";
  EXPECT_EQ(to_csv(record),
            "rank,trial,name,state,loss,objective_step,steps,starts,seconds,error,model.name,optimizer.lr\r\n"
            "1,0,trial,done,0.3333333333333333,,0,0,0.0,\"no \"\"x\"\"\",\"a,b\",0.1\r\n");
}

TEST(Report, NoTextOfATrialCanEndTheScript) {
  const std::string page = report_page("{\"name\":\"</script><script>alert(1)//&<!--\"}");
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e\\u003cscript\\u003ealert(1)//\\u0026\\u003c!--"));
  EXPECT_THAT(page, Not(HasSubstr("alert(1)//&")));
  EXPECT_THAT(page, Not(HasSubstr("@DATA@")));
}

}  // namespace
}  // namespace titan::sweep
