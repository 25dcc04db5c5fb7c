// Tests what a logged row says about all ranks, on two ranks.
#include "train/guests/metrics_log.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace titan::train {
namespace {

// A source without batches, with as many bad records as the rank plus one.
class BadRecords : public BatchSource {
 public:
  explicit BadRecords(int rank) : rank_(rank) {}
  std::optional<Batch> next() override { return std::nullopt; }
  std::vector<StateEntry> state() const override { return {}; }
  void load_state(const Values&) override {}
  void restart() override {}
  std::optional<std::int64_t> bad_records() const override { return rank_ + 1; }

 private:
  int rank_;
};

class KeptRows : public metrics::MetricsSink {
 public:
  explicit KeptRows(std::vector<metrics::StepMetrics>& rows) : rows_(rows) {}
  void log(const metrics::StepMetrics& row) override { rows_.push_back(row); }

 private:
  std::vector<metrics::StepMetrics>& rows_;
};

TEST(MetricsLog, ARowIsOfAllRanks) {
  test::on_ranks(2, [](dist::World& world) {
    const auto meshes = dist::Meshes::build(world, {.dp_shard = world.size(), .world_size = world.size()});
    std::vector<metrics::StepMetrics> rows;
    std::vector<std::unique_ptr<metrics::MetricsSink>> sinks;
    sinks.push_back(std::make_unique<KeptRows>(rows));
    metrics::MetricsProcessor processor({.log_freq = 10}, std::move(sinks));
    const BadRecords data(world.rank());
    MetricsLog log(processor, data, meshes, "float16");  // the peak of float16 is not measured

    // Rank 0 has 10 of 40 tokens with a mean of 4, rank 1 the others with a mean of 2.
    const bool is_first = world.rank() == 0;
    StepInput input;
    input.local_valid_tokens = is_first ? 10 : 30;
    input.global_valid_tokens = 40;
    StepOutput output;
    output.loss = at::full({}, is_first ? 1.0F : 1.5F);
    output.grad_norm = at::full({}, 0.5F);
    output.lr = 0.25;
    for (const std::int64_t step : {1, 2}) {
      log.before_step();
      processor.add_data(is_first ? 11 : 31, 0.0);
      EXPECT_EQ(log.after_step({step, input, output}), Verdict::go_on());
    }
    ASSERT_EQ(rows.size(), 1U) << "step 2 was not to be logged";
    EXPECT_EQ(rows[0].step, 1);
    EXPECT_EQ(rows[0].loss, 2.5);
    EXPECT_EQ(rows[0].max_loss, 4.0);
    EXPECT_EQ(rows[0].grad_norm, 0.5);
    EXPECT_EQ(rows[0].lr, 0.25);
    EXPECT_EQ(rows[0].tokens_seen, 42);
    EXPECT_EQ(rows[0].bad_records, 3);
    EXPECT_FALSE(rows[0].grad_scale);
    log.log({2, input, output});  // even if it is not due
    EXPECT_EQ(rows.at(1).step, 2);
    EXPECT_FALSE(processor.has_peak_flops());
  });
}

// Ranks that share rows have a part of their loss each, and one of them may have no label that counts.
TEST(MetricsLog, ARowIsOfRanksThatShareSequences) {
  test::on_ranks(4, [](dist::World& world) {
    const auto meshes = dist::Meshes::build(world, {.dp_shard = 2, .cp = 2, .world_size = world.size()});
    std::vector<metrics::StepMetrics> rows;
    std::vector<std::unique_ptr<metrics::MetricsSink>> sinks;
    sinks.push_back(std::make_unique<KeptRows>(rows));
    metrics::MetricsProcessor processor({.log_freq = 1}, std::move(sinks));
    const BadRecords data(0);
    MetricsLog log(processor, data, meshes, "float16");

    // The rows of ranks 0 and 1 have 10 of 40 labels with a mean of 4, all of them in rank 1's part; those of ranks 2
    // and 3 the others with a mean of 2.
    const bool is_first = world.rank() < 2;
    StepInput input;
    input.local_valid_tokens = is_first ? 10 : 30;
    input.global_valid_tokens = 40;
    StepOutput output;
    output.loss = at::full({}, std::array{0.0F, 1.0F, 0.5F, 1.0F}.at(static_cast<std::size_t>(world.rank())));
    output.grad_norm = at::full({}, 0.5F);
    log.before_step();
    processor.add_data(is_first ? 11 : 31, 0.0);
    EXPECT_EQ(log.after_step({1, input, output}), Verdict::go_on());
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].loss, 2.5);
    EXPECT_EQ(rows[0].max_loss, 4.0);
    EXPECT_EQ(rows[0].tokens_seen, 42);
  });
}

}  // namespace
}  // namespace titan::train
