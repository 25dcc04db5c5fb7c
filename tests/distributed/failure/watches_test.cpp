// Tests the watches of a step's loss and gradients on two real ranks with a sharded model: the search for the first
// NaN, and the watches as on a device, whose results are only read at some steps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <sstream>

#include "nn/layers.h"
#include "nn/ops/cross_entropy.h"
#include "optim/adamw.h"
#include "optim/clip_grad_norm.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/optimizer_state.h"
#include "tests/support/run_ranks.h"
#include "train/guests/numerics/divergence_watch.h"
#include "train/guests/numerics/spike_watch.h"
#include "train/step/run_parameters.h"

namespace titan::train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kVocabulary = 11;

class WatchedBlock : public nn::Module {
 public:
  WatchedBlock() {
    child("up", up, std::make_shared<nn::Linear>(8, 8));
    child("down", down, std::make_shared<nn::Linear>(8, 8));
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return inputs[0] + (*down)(at::silu((*up)(inputs[0]))); }
  std::shared_ptr<nn::Linear> up, down;
};

class WatchedNet : public LanguageModel {
 public:
  WatchedNet() {
    child("embedding", embedding, std::make_shared<nn::Embedding>(kVocabulary, 8));
    child("layers", layers, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < 3; ++i) layers->append(std::make_shared<WatchedBlock>());
    child("output", output, std::make_shared<nn::Linear>(8, kVocabulary));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    auto state = (*embedding)(inputs[0]);
    for (const auto& [name, layer] : layers->children()) state = (*layer)(state);
    return nn::cross_entropy_sum((*output)(state), inputs[1]);
  }
  void init_weights(nn::Initializer& initializer, at::Device /*buffer_device*/) override {
    for (const auto& parameter : named_parameters()) initializer.normal(parameter, 0.0, 0.5);
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::ModuleList> layers;
  std::shared_ptr<nn::Linear> output;
};

Batch batch_of(int rank, int number) {
  const auto rows = at::randint(
      kVocabulary, {2, 7}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * number + rank)), at::kLong);
  return {rows.narrow(1, 0, 6), rows.narrow(1, 1, 6)};
}

class NoData : public BatchSource {
 public:
  std::optional<Batch> next() override { return std::nullopt; }
  std::vector<StateEntry> state() const override { return {}; }
  void load_state(const Values&) override {}
  void restart() override {}
};

// Has everything that a watch needs, except files.
struct WatchedRun : checkpoint::CheckpointState {
  explicit WatchedRun(dist::World& world_)
      : world(world_), meshes(dist::Meshes::build(world, {.dp_shard = world.size(), .world_size = world.size()})) {
    fsdp::FullyShardOptions options{.mesh = meshes.fsdp};
    for (std::size_t i = 0; i < net.layers->size(); ++i) fsdp::fully_shard((*net.layers)[i], options);
    fsdp::fully_shard(net, options);
    fsdp::to_empty(net, at::kCPU);
    const at::NoGradGuard no_grad;
    nn::SequentialInitializer initializer(7);
    net.init_weights(initializer, at::kCPU);
    forward_backward = make_forward_backward(net, at::kCPU, cross_entropy_of_model);
    parameters.emplace(net);
    optimizer.emplace(parameters->to_train(), optim::AdamWOptions{.lr = 0.01});
    config.training.steps = 100;
  }
  std::vector<checkpoint::Item> items(bool) override { return {}; }
  std::vector<checkpoint::Item> probes() override { return {}; }
  void check_fits(const Values&) override {}
  void restored(const Values&, bool) override {}

  NanLocator locator() { return {net, *parameters, *forward_backward, world.group()}; }
  ReadSteps read_steps() { return {log, checkpointer, 100}; }
  at::Tensor weight_of(const std::string& fqn) {
    for (const auto& parameter : net.named_parameters())
      if (parameter.fqn == fqn) return parameter.tensor().detach();
    return {};
  }
  // Computes the gradients of the batches of `number`. Returns the loss and the gradient norm.
  StepOutput backward(std::int64_t number) {
    optimizer->zero_grad();
    input = {};
    StepOutput result;
    for (int i = 0; i < 2; ++i) {
      input.microbatches.push_back(batch_of(world.rank(), static_cast<int>(2 * number + i)));
      const auto loss =
          forward_backward
              ->forward_backward(input.microbatches.back(), [](const at::Tensor& sum) { return sum / 48.0; })
              .loss;
      result.loss = result.loss.defined() ? result.loss + loss / 48.0 : loss / 48.0;
    }
    input.local_valid_tokens = 24;
    input.global_valid_tokens = 48;
    result.grad_norm = optim::clip_factor(optimizer->sharded_grads(), 1.0).norm;
    return result;
  }

  dist::World& world;
  dist::Meshes meshes;
  WatchedNet net;
  std::unique_ptr<ForwardBackward> forward_backward;
  std::optional<RunParameters> parameters;
  std::optional<optim::AdamW> optimizer;
  config::JobConfig config;
  metrics::MetricsProcessor metrics{{.log_freq = 10}, {}};
  NoData data;
  MetricsLog log{metrics, data, meshes, "float16"};
  checkpoint::GroupRanks ranks{world.group()};
  checkpoint::Checkpointer checkpointer{config.checkpoint, {}, ranks, *this};
  metrics::EventLog no_events{"", /*is_writer=*/false};
  StepInput input;
};

// Sets one element per token of the module's output to NaN, in call number `call`.
void poison(nn::Module& module, int call) {
  module.add_post_hook([call, calls = 0](nn::Module&, const nn::Tensors&, at::Tensor& output) mutable {
    if (calls++ == call) output.select(-1, 0).fill_(kNan);
  });
}

TEST(NanLocator, NamesTheModuleOfTheRankThatWasFirst) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    auto locator = run.locator();
    const std::vector<Batch> batches = {batch_of(world.rank(), 1), batch_of(world.rank(), 2)};
    auto& blocks = *run.net.layers;
    EXPECT_FALSE(locator.locate(batches, false).output) << "all is well";
    // Rank 1 is poisoned in the second microbatch, rank 0 in a later module of the same one.
    if (world.rank() == 1) poison(*dynamic_cast<WatchedBlock&>(blocks[1]).down, 1);
    if (world.rank() == 0) poison(*run.net.output, 1);
    const auto report = locator.locate(batches, false);
    ASSERT_TRUE(report.output);
    EXPECT_EQ(report.output->module, "layers.1.down");
    EXPECT_EQ(report.output->rank, 1);
    EXPECT_EQ(report.output->microbatch, 1);
    EXPECT_TRUE(report.output->inputs_are_finite);
    EXPECT_EQ(report.output->count.nan, 12) << "of 2 x 6 tokens one each";
    EXPECT_EQ(report.bad_loss_ranks, (std::vector<int>{0, 1}));
    EXPECT_TRUE(report.weights.empty());
    EXPECT_FALSE(locator.locate(batches, false).output) << "the hooks are gone, and so is what happened once";
  });
}

TEST(NanLocator, CountsWhatTheRanksHold) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    auto locator = run.locator();
    EXPECT_TRUE(locator.weights_are_finite());
    run.backward(0);
    if (world.rank() == 1) run.weight_of("layers.2.up.weight").view(-1)[3] = kNan;
    if (world.rank() == 0) run.weight_of("layers.2.up.weight").view(-1)[0] = -std::numeric_limits<float>::infinity();
    if (world.rank() == 0) run.net.named_parameters()[1].tensor().mutable_grad().fill_(kNan);
    EXPECT_FALSE(locator.weights_are_finite()) << "also on the rank whose own are";
    const auto report = locator.locate(run.input.microbatches, true);
    ASSERT_EQ(report.weights.size(), 1U);
    EXPECT_EQ(report.weights[0].fqn, "layers.2.up.weight");
    EXPECT_EQ(report.weights[0].count.nan, 1);
    EXPECT_EQ(report.weights[0].count.inf, 1);
    ASSERT_EQ(report.gradients.size(), 1U);
    EXPECT_EQ(report.gradients[0].fqn, "layers.0.up.weight");
    ASSERT_TRUE(report.output);
    EXPECT_EQ(report.output->module, "layers.2.up");
    // Training can continue: the parameters are sharded again.
    for (const auto& parameter : run.net.named_parameters())
      EXPECT_EQ(parameter.tensor().sizes(), at::IntArrayRef(parameter.parameter->sharding->spec.local_shape));
  });
}

struct Watched {
  Watched(WatchedRun& run_, const char* policy, bool on_host) : run(run_) {
    run.config.training.on_nan = policy;
    watch.emplace(DivergenceWatch::Parts{.config = run.config,
                                         .checkpointer = run.checkpointer,
                                         .log = run.log,
                                         .events = run.no_events,
                                         .read_steps = run.read_steps(),
                                         .locator = run.locator(),
                                         .roll_back =
                                             [this](std::int64_t step) {
                                               rolled_back.push_back(step);
                                               return true;
                                             },
                                         .judges_norm = true,
                                         .norm_is_on_host = on_host});
  }
  // Runs a step like TrainStep's. If `bad`, a module returns NaN in its forward.
  Verdict step(std::int64_t number, bool bad) {
    auto& module = *dynamic_cast<WatchedBlock&>((*run.net.layers)[1]).up;
    if (bad) module.add_post_hook([](nn::Module&, const nn::Tensors&, at::Tensor& out) { out = out * kNan; });
    auto output = run.backward(number);
    output.skipped = watch->before_update({number, run.input, output});
    left_out.push_back(output.skipped.defined() && output.skipped.item<float>() == 1);
    run.optimizer->step({.found_inf = output.skipped});
    run.metrics.begin_step();
    run.metrics.add_data(24, 0);
    run.metrics.end_step(number);
    if (logs && run.log.is_logged(number)) run.log.log({number, run.input, output});
    const auto end = watch->after_step({number, run.input, output});
    if (bad) module.pop_post_hook();
    return end;
  }
  WatchedRun& run;
  std::optional<DivergenceWatch> watch;
  bool logs = false;
  std::vector<bool> left_out;
  std::vector<std::int64_t> rolled_back;
};

TEST(DivergenceWatch, SkipsOnTheDeviceWithoutBeingAsked) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    Watched skip(run, "skip", /*on_host=*/false);
    for (std::int64_t step = 2; step <= 9; ++step) {
      const auto before = run.weight_of("output.weight").clone();
      EXPECT_EQ(skip.step(step, step == 4 || step == 5), Verdict::go_on());
      EXPECT_EQ(run.weight_of("output.weight").equal(before), step == 4 || step == 5) << step;
      EXPECT_EQ(skip.watch->saved(), Value(step == 4 ? 1 : step == 5 ? 2 : 0)) << step;
    }
    EXPECT_EQ(test::state_of(*run.optimizer, 0, "step").item<float>(), 6) << "steps that were left out do not count";
    EXPECT_TRUE(run.locator().weights_are_finite());
  });
}

TEST(DivergenceWatch, StopsAfterTenStepsInARowThatAResumeCountsOn) {
  test::on_ranks(2, [](dist::World& world) {
    for (const bool on_host : {true, false}) {
      WatchedRun run(world);
      Watched skip(run, "skip", on_host);
      const Value saved(7);
      skip.watch->restore(&saved);
      EXPECT_EQ(skip.step(11, true), Verdict::go_on());
      EXPECT_EQ(skip.step(12, true), Verdict::go_on());
      const auto end = skip.step(13, true);
      EXPECT_EQ(end, on_host ? Verdict::ends(RunEnd::kDiverged) : Verdict::go_on());
      if (!on_host) {
        EXPECT_EQ(skip.step(20, false), Verdict::ends(RunEnd::kDiverged)) << "where the log reads the device";
      }
    }
  });
}

// On a device the first bad step is found at a later read: no update is applied in between.
TEST(DivergenceWatch, RollsBackFromTheReadOn) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    Watched watched(run, "rollback", /*on_host=*/false);
    for (std::int64_t step = 2; step <= 9; ++step) EXPECT_EQ(watched.step(step, step == 7), Verdict::go_on());
    EXPECT_EQ(watched.left_out, (std::vector<bool>{false, false, false, false, false, true, true, true}));
    EXPECT_TRUE(watched.rolled_back.empty());
    EXPECT_EQ(watched.step(10, false), Verdict::rolled_back());
    EXPECT_EQ(watched.rolled_back, std::vector<std::int64_t>{10});
    EXPECT_EQ(watched.step(11, false), Verdict::go_on());
    EXPECT_FALSE(watched.left_out.back()) << "it begins anew";

    Watched at_once(run, "rollback", /*on_host=*/true);
    EXPECT_EQ(at_once.step(3, false), Verdict::go_on());
    EXPECT_EQ(at_once.step(4, true), Verdict::rolled_back());
    EXPECT_EQ(at_once.step(5, false), Verdict::go_on());
  });
}

TEST(DivergenceWatch, WarnsOnceAndTrainsOn) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    Watched watched(run, "warn", /*on_host=*/true);
    EXPECT_EQ(watched.step(4, true), Verdict::go_on());
    EXPECT_EQ(watched.step(5, false), Verdict::go_on());
    EXPECT_EQ(watched.left_out, (std::vector<bool>{false, false}));
    EXPECT_FALSE(run.locator().weights_are_finite()) << "as the update of such a step leaves them";
  });
}

// Captures the log of this rank while it exists.
class Lines {
 public:
  Lines() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_st>(text_)));
  }
  ~Lines() { spdlog::set_default_logger(before_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  int count(const std::string& words) const {
    int found = 0;
    for (std::size_t at = 0; (at = text_.str().find(words, at)) != std::string::npos; ++at) ++found;
    return found;
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST(DivergenceWatch, AnInfiniteLossAloneIsSaidOnce) {
  test::on_ranks(2, [](dist::World& world) {
    const Lines lines;
    WatchedRun run(world);
    run.net.add_post_hook(
        [](nn::Module&, const nn::Tensors&, at::Tensor& out) { out = out + std::numeric_limits<float>::infinity(); });
    Watched watched(run, "stop", /*on_host=*/true);
    watched.logs = true;
    EXPECT_EQ(watched.step(10, false), Verdict::go_on());
    EXPECT_EQ(watched.step(20, false), Verdict::go_on());
    EXPECT_EQ(watched.left_out, (std::vector<bool>{false, false}));
    EXPECT_EQ(lines.count("step 10: the loss is inf, while the norm of the gradients is finite"), 1);
    EXPECT_EQ(lines.count("the loss is inf"), 1);
    EXPECT_EQ(lines.count("first not finite: the loss on rank 0, microbatch 0"), 1);
  });
}

// If the device is read later, the first bad step is named with its own batch.
TEST(DivergenceWatch, NamesTheModuleAtALaterRead) {
  test::on_ranks(2, [](dist::World& world) {
    const Lines lines;
    WatchedRun run(world);
    run.weight_of("layers.1.down.weight").view(-1)[5] = std::numeric_limits<float>::infinity();
    Watched watched(run, "stop", /*on_host=*/false);
    watched.logs = true;
    for (std::int64_t step = 7; step <= 9; ++step) EXPECT_EQ(watched.step(step, false), Verdict::go_on());
    EXPECT_EQ(watched.left_out, (std::vector<bool>{true, true, true}));
    EXPECT_EQ(watched.step(10, false), Verdict::ends(RunEnd::kDiverged));
    EXPECT_EQ(
        lines.count("step 7: the norm of the gradients is not finite; first not finite: the output of layers.1.down"),
        1);
    EXPECT_EQ(lines.count("training stops: at step 7 the norm"), 1);
  });
}

// Uses made-up losses and norms: "skip" skips the steps that "warn" would have named, in the same window.
TEST(SpikeWatch, SkipAndWarnJudgeAlike) {
  test::on_ranks(2, [](dist::World& world) {
    WatchedRun run(world);
    const auto sum = [&](at::Tensor& losses) { world.group().all_reduce(losses, dist::ReduceOp::kSum).wait(); };
    run.config.training.spike_window = 16;
    run.config.training.on_spike = "skip";
    SpikeWatch skip(run.config.training, at::kCPU, sum, run.read_steps(), run.no_events);
    auto options = run.config.training;
    options.on_spike = "warn";
    SpikeWatch warn(options, at::kCPU, sum, run.read_steps(), run.no_events);
    std::vector<std::int64_t> skipped;
    for (std::int64_t step = 2; step <= 40; ++step) {
      StepOutput output;
      // Each rank has its part of the loss; only rank 1's is large at step 23.
      const bool is_large = step == 23 && world.rank() == 1;
      output.loss = at::full({}, is_large ? 40.0 : 1.0 + 0.05 * static_cast<double>(step % 5), at::kFloat);
      output.grad_norm = at::full({}, step == 31 ? 90.0 : 1.0 + 0.1 * static_cast<double>(step % 3), at::kFloat);
      if (skip.before_update({step, run.input, output}).item<float>() == 1) skipped.push_back(step);
      EXPECT_FALSE(warn.before_update({step, run.input, output}).defined());
      const StepView finished{step, run.input, output};
      EXPECT_EQ(skip.after_step(finished), Verdict::go_on());
      EXPECT_EQ(warn.after_step(finished), Verdict::go_on());
    }
    EXPECT_EQ(skipped, (std::vector<std::int64_t>{23, 31}));
    EXPECT_EQ(skip.saved(), warn.saved()) << "step 40 was read";
    warn.restore(nullptr);
    EXPECT_EQ(warn.saved(), SpikeWatch(options, at::kCPU, sum, run.read_steps(), run.no_events).saved());
  });
}

}  // namespace
}  // namespace titan::train
