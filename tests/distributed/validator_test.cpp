// Tests a pass over a held-out set on real ranks: every row is used once, and the model is unchanged afterwards.
#include "train/guests/validator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "base/process/signal.h"
#include "nn/layers.h"
#include "nn/ops/cross_entropy.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"

namespace titan::train {
namespace {

constexpr std::int64_t kVocabulary = 11, kT = 6;

class Net : public LanguageModel {
 public:
  Net() {
    child("embedding", embedding, std::make_shared<nn::Embedding>(kVocabulary, 8));
    child("output", output, std::make_shared<nn::Linear>(8, kVocabulary));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    modes.push_back({training(), at::GradMode::is_enabled()});
    const auto logits = (*output)((*embedding)(inputs[0]));
    return inputs.size() > 1 ? nn::cross_entropy_sum(logits, inputs[1]) : logits;
  }
  void init_weights(nn::Initializer& initializer, at::Device /*buffer_device*/) override {
    for (const auto& parameter : named_parameters()) initializer.normal(parameter, 0.0, 1.0);
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::Linear> output;
  std::vector<std::pair<bool, bool>> modes;  // per forward: training, with a graph
};

// Makes a net whose `output` stays gathered after forward, like the last group of a Llama.
std::unique_ptr<Net> make_net(const dist::DeviceMesh* mesh) {
  auto net = std::make_unique<Net>();
  if (mesh) {
    fsdp::FullyShardOptions options{.mesh = *mesh};
    fsdp::fully_shard(*net->embedding, options);
    options.reshard_after_forward = false;
    fsdp::fully_shard(*net->output, options);
    options.reshard_after_forward = std::nullopt;
    fsdp::fully_shard(*net, options);
  }
  fsdp::to_empty(*net, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  net->init_weights(initializer, at::kCPU);
  return net;
}

// Returns rows of a tensor, `rows_per_batch` at a time; starts again at the first row if endless.
class Rows : public BatchSource {
 public:
  Rows(at::Tensor windows, std::int64_t rows_per_batch, bool endless)
      : windows_(std::move(windows)), rows_(rows_per_batch), endless_(endless) {}
  std::optional<Batch> next() override {
    if (endless_ && next_ >= windows_.size(0)) next_ = 0;
    const auto count = std::min(rows_, windows_.size(0) - next_);
    if (count <= 0) return std::nullopt;
    const auto window = windows_.narrow(0, next_, count);
    next_ += count;
    ++num_batches;
    return Batch{window.narrow(1, 0, kT), window.narrow(1, 1, kT)};
  }
  std::vector<StateEntry> state() const override { return {}; }
  void load_state(const Values& /*saved*/) override {}
  void restart() override { next_ = 0; }
  int num_batches = 0;

 private:
  at::Tensor windows_;
  std::int64_t rows_, next_ = 0;
  bool endless_;
};

at::Tensor windows(std::int64_t count) {
  return at::randint(kVocabulary, {count, kT + 1}, at::detail::createCPUGenerator(3), at::kLong);
}

double mean_loss(Net& net, const at::Tensor& rows) {
  const at::NoGradGuard no_grad;
  return net(rows.narrow(1, 0, kT), rows.narrow(1, 1, kT)).item<double>() / static_cast<double>(rows.size(0) * kT);
}

// Keeps the validation rows that are logged.
class Reports : public metrics::MetricsSink {
 public:
  explicit Reports(std::vector<metrics::ValidationMetrics>& rows) : rows_(rows) {}
  void log(const metrics::StepMetrics&) override {}
  void log_validation(const metrics::ValidationMetrics& row) override { rows_.push_back(row); }

 private:
  std::vector<metrics::ValidationMetrics>& rows_;
};

struct Harness {
  // `tp` is the number of ranks that read the same rows; the net does not depend on it.
  Harness(dist::World& world, std::unique_ptr<Rows> rows, std::int64_t steps, int tp = 1)
      : meshes(dist::Meshes::build(world, {.dp_shard = world.size() / tp, .tp = tp, .world_size = world.size()})),
        net(make_net(&meshes.fsdp)),
        forward_backward(make_forward_backward(*net, meshes.fsdp.device(), cross_entropy_of_model)),
        metrics({.log_freq = 1}, {}),
        source(rows.get()) {
    std::vector<std::unique_ptr<metrics::MetricsSink>> sinks;
    sinks.push_back(std::make_unique<Reports>(reports));
    metrics.set_sinks(std::move(sinks));
    options.freq = 2;
    options.steps = steps;
    options.local_batch_size = 2;
    options.seq_len = kT;
    validator.emplace(options, std::move(rows), *net, *forward_backward, world.group(), meshes, metrics,
                      /*last_step=*/5);
  }
  dist::Meshes meshes;
  std::unique_ptr<Net> net;
  std::unique_ptr<ForwardBackward> forward_backward;
  std::vector<metrics::ValidationMetrics> reports;
  metrics::MetricsProcessor metrics;
  config::Validation options;
  Rows* source;
  std::optional<Validator> validator;
};

std::unique_ptr<Rows> whole_set(const dist::World& world, std::int64_t count) {
  return std::make_unique<Rows>(windows(count), 2 * world.size(), /*endless=*/false);
}

// With 5 rows, 2 ranks get a batch of 4 and one of 1, in which rank 1 has no row; 3 ranks get one batch, in which rank
// 2 has one row. The mean is that of one device up to the rounding of float32 sums of 30 terms.
void expect_exact(dist::World& world, std::int64_t count) {
  Harness setup(world, whole_set(world, count), -1);
  for (const std::int64_t step : {1, 2, 3, 4}) setup.validator->run_if_due(step);
  ASSERT_EQ(setup.reports.size(), 3U);
  const double expected = mean_loss(*make_net(nullptr), windows(count));
  for (const auto& report : setup.reports) {
    EXPECT_NEAR(report.loss, expected, 1e-6);
    EXPECT_EQ(report.tokens, count * kT);
  }
}
TEST(Validator, OneRankSeesTheWholeSet) {
  test::on_ranks(1, [](dist::World& world) { expect_exact(world, 5); });
}
TEST(Validator, TwoRanksShareTheWholeSet) {
  test::on_ranks(2, [](dist::World& world) { expect_exact(world, 5); });
}
TEST(Validator, ThreeRanksShareTheWholeSet) {
  test::on_ranks(3, [](dist::World& world) { expect_exact(world, 5); });
}
TEST(Validator, OneRowForThreeRanks) {
  test::on_ranks(3, [](dist::World& world) { expect_exact(world, 1); });
}

TEST(Validator, LeavesTheModelAsItWas) {
  test::on_ranks(2, [](dist::World& world) {
    Harness setup(world, whole_set(world, 5), -1);
    const auto shapes = [&] {
      std::vector<std::vector<std::int64_t>> all;
      for (const auto& parameter : setup.net->named_parameters()) all.push_back(parameter.tensor().sizes().vec());
      return all;
    };
    const auto before = shapes();
    at::manual_seed(5);
    const auto numbers = at::rand({4});
    at::manual_seed(5);
    setup.validator->run_if_due(2);
    EXPECT_TRUE(at::rand({4}).equal(numbers));
    EXPECT_EQ(shapes(), before);
    EXPECT_NE(before[1], (std::vector<std::int64_t>{kVocabulary, 8}));  // a shard, not the full tensor
    EXPECT_TRUE(setup.net->training() && setup.net->output->training() && at::GradMode::is_enabled());
    for (const auto& [training, with_graph] : setup.net->modes) EXPECT_FALSE(training || with_graph);
    EXPECT_EQ(setup.net->modes.size(), 2U);
  });
}

// Every pass uses the same batches, so that the losses of two steps compare.
TEST(Validator, EveryPassLooksAtTheFirstBatches) {
  test::on_ranks(1, [](dist::World& world) {
    Harness setup(world, std::make_unique<Rows>(windows(10), 2, /*endless=*/true), 2);
    setup.validator->run_if_due(2);
    setup.validator->run_if_due(4);
    EXPECT_NEAR(setup.reports.at(0).loss, mean_loss(*make_net(nullptr), windows(10).narrow(0, 0, 4)), 1e-6);
    EXPECT_EQ(setup.reports.at(1).loss, setup.reports.at(0).loss);
    EXPECT_EQ(setup.source->num_batches, 4);
  });
}

TEST(Validator, RunsAtTheLastStepWhereAsked) {
  test::on_ranks(1, [](dist::World& world) {
    Harness setup(world, whole_set(world, 5), -1);
    EXPECT_FALSE(setup.validator->run_if_due(5));
    setup.options.at_last_step = true;
    EXPECT_TRUE(setup.validator->run_if_due(5));
    EXPECT_FALSE(setup.validator->run_if_due(3));
  });
}

// The folder with the rows may be on one node only: it is enough that one rank knows of a pass.
TEST(Validator, OwesAPassThatIsDueAndThatNoRankKnowsOf) {
  test::on_ranks(2, [](dist::World& world) {
    Harness setup(world, whole_set(world, 5), -1);
    EXPECT_TRUE(setup.validator->owes(2));
    EXPECT_FALSE(setup.validator->owes(3));
    EXPECT_FALSE(setup.validator->owes(0));
    if (world.rank() == 1) setup.validator->restore({{1, 0.5}, {2, std::nan("")}});
    EXPECT_FALSE(setup.validator->owes(2));
    EXPECT_TRUE(setup.validator->owes(4));
  });
}

TEST(Validator, RemembersTheBest) {
  test::on_ranks(1, [](dist::World& world) {
    Harness setup(world, whole_set(world, 5), -1);
    setup.validator->restore({{2, 0.5}, {4, 0.25}, {6, 0.75}});
    EXPECT_EQ(setup.validator->best_of({2, 6}), 2);
    EXPECT_EQ(setup.validator->best_of({2, 4, 6, 7}), 4);
    EXPECT_EQ(setup.validator->best_of({3}), std::nullopt);
    setup.validator->run_if_due(8);  // untrained: above 0.25
    EXPECT_EQ(setup.reports.back().best_step, 4);
    EXPECT_EQ(setup.reports.back().best_loss, 0.25);
  });
}

// Otherwise the other rank would hang in the next matmul that they share.
TEST(Validator, AStopOfOneOfTheRanksThatShareABatchStopsBoth) {
  test::on_ranks(2, [](dist::World& world) {
    Harness setup(world, whole_set(world, 5), -1, /*tp=*/2);
    EXPECT_TRUE(setup.validator->run_if_due(2));
    install_signal_handlers();
    if (world.rank() == 1) std::raise(SIGTERM);
    EXPECT_FALSE(setup.validator->run_if_due(4));
  });
}

TEST(Validator, RefusesASetWithoutAWindow) {
  test::on_ranks(2, [](dist::World& world) {
    EXPECT_THROW(Harness(world, whole_set(world, 0), -1), DataError);  // before any training
  });
}

}  // namespace
}  // namespace titan::train
