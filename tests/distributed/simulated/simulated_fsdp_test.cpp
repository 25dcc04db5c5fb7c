// Tests fully_shard on the simulated device, in each of its modes: there are no races, the host waits only where it
// must, and the results are those of one CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "optim/clip_grad_norm.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/simulated_device/simulated_device.h"
#include "tests/support/tiny_net.h"

namespace titan {
namespace {

using ::testing::IsEmpty;
using Net = test::TinyNet;

constexpr int kSteps = 3;

struct Mode {
  std::string name;
  std::vector<int> mesh = {};  // empty: one dim of all ranks
  fsdp::FullyShardOptions options = {};
  bool checkpoint = false;
  int microbatches = 1;
  std::function<void(Net&)> prepare = {};
  std::function<void(Net&, int microbatch, bool last)> before_backward = {};
  std::function<void(Net&)> after_step = {};
  double tolerance = 1e-5;  // relative, of losses
};

struct Result {
  std::vector<double> losses, norms;
};

// Results of steps on the device, which are read after all steps.
struct Trace {
  std::vector<at::Tensor> losses, norms;

  Result read() const {
    Result result;
    for (const auto& loss : losses) result.losses.push_back(loss.item<double>());
    for (const auto& norm : norms) result.norms.push_back(norm.item<double>());
    return result;
  }
};

at::Tensor clip(optim::AdamW& optimizer, dist::ProcessGroup* group) {
  std::vector<optim::ShardedGrad> grads;
  for (const auto& grad : optimizer.grads()) {
    grads.push_back({grad, {}});
    if (group) grads.back().sharded_over = {group};
  }
  return optim::clip_grad_norm(grads, 1.0);
}

void init(Net& net, at::Device device) {
  fsdp::to_empty(net, device);
  const at::NoGradGuard no_grad;
  nn::CounterInitializer initializer(7);
  for (const auto& parameter : net.named_parameters()) initializer.normal(parameter, 0.0, 0.5);
}

// Trains on all ranks' batches, on the CPU.
Result train_plain(int num_batches) {
  Net net;
  init(net, at::kCPU);
  auto optimizer = test::optimizer_of(net);
  Trace trace;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    auto total = at::zeros({});
    for (int i = 0; i < num_batches; ++i) {
      const auto loss = test::loss_of(net, test::tokens_of(step, i));
      torch::autograd::backward({loss}, {});
      total.add_(loss.detach());
    }
    trace.losses.push_back(total);
    trace.norms.push_back(clip(optimizer, nullptr));
    optimizer.step();
  }
  return trace.read();
}

void shard(Net& net, const Mode& mode, const dist::DeviceMesh& mesh) {
  auto options = mode.options;
  options.mesh = mesh;
  test::shard_by_block(net, options, mode.checkpoint);
}

Trace train_steps(Net& net, const Mode& mode, dist::World& world, dist::ProcessGroup& shards) {
  auto optimizer = test::optimizer_of(net);
  Trace trace;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    auto total = at::zeros({}, at::TensorOptions().device(world.device()));
    for (int i = 0; i < mode.microbatches; ++i) {
      const auto tokens =
          test::tokens_of(step, world.rank() * mode.microbatches + i).pin_memory().to(world.device(), true);
      const auto loss = test::loss_of(net, tokens);
      if (mode.before_backward) mode.before_backward(net, i, i + 1 == mode.microbatches);
      torch::autograd::backward({loss}, {});
      total.add_(loss.detach());
    }
    world.group().all_reduce(total, dist::ReduceOp::kSum).wait();
    trace.losses.push_back(total);
    trace.norms.push_back(clip(optimizer, &shards));
    optimizer.step();
    if (mode.after_step) mode.after_step(net);
  }
  return trace;
}

dist::DeviceMesh mesh_of(const Mode& mode, dist::World& world) {
  if (mode.mesh.empty()) return test::one_dim(world);
  return dist::DeviceMesh::init(world, mode.mesh, {"dp_replicate", "fsdp"});
}

void expect_clean(const Mode& mode, dist::World& world) {
  SCOPED_TRACE(mode.name + ", " + std::to_string(world.size()) + " ranks");
  Net net;
  const auto mesh = mesh_of(mode, world);
  shard(net, mode, mesh);
  init(net, world.device());
  if (mode.prepare) mode.prepare(net);
  sim::reset();
  const auto trace = train_steps(net, mode, world, mesh.group("fsdp"));
  const auto found = sim::findings();
  EXPECT_THAT(found.races, IsEmpty());
  if (!mode.options.offload_policy) {
    EXPECT_THAT(found.synchronizations, IsEmpty());
  }
  const auto result = trace.read(), plain = train_plain(world.size() * mode.microbatches);
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(result.losses[step], plain.losses[step], mode.tolerance * plain.losses[step]) << "step " << step;
    EXPECT_NEAR(result.norms[step], plain.norms[step], 10 * mode.tolerance * plain.norms[step]) << "step " << step;
  }
}

fsdp::FullyShardOptions resharded(fsdp::ReshardAfterForward rule) {
  return {.mesh = {}, .reshard_after_forward = rule};
}

// Returns options for a lower precision, which rounds values once per layer; such modes have a larger tolerance.
fsdp::FullyShardOptions mixed(at::ScalarType param, at::ScalarType reduce) {
  return {.mesh = {},
          .mp_policy = {.param_dtype = param, .reduce_dtype = reduce, .output_dtype = {}, .cast_forward_inputs = true}};
}

fsdp::FullyShardOptions offloaded() { return {.mesh = {}, .offload_policy = fsdp::CPUOffloadPolicy{}}; }

void sync_last(Net& net, int, bool last) {
  fsdp::set_requires_gradient_sync(net, last);
  fsdp::set_is_last_backward(net, last);
}

void gather_by_hand(Net& net) {
  fsdp::unshard((*net.blocks)[1]).wait();
  fsdp::unshard((*net.blocks)[2], /*async=*/true);
  fsdp::reshard((*net.blocks)[1]);
}

void run_a_part(Net& net) {
  const at::NoGradGuard no_grad;
  (*net.blocks)[1](at::ones({2, 7}, at::TensorOptions().device(sim::device())));
}

void prefetch(Net& net) {
  auto& blocks = *net.blocks;
  fsdp::set_modules_to_forward_prefetch(*net.embedding, {&blocks[0], &blocks[1]});
  fsdp::set_modules_to_forward_prefetch(blocks[0], {&blocks[2]});
  fsdp::set_modules_to_backward_prefetch(blocks[2], {&blocks[1], &blocks[0]});
}

std::vector<Mode> modes_of_any_size() {
  return {
      {.name = "ZeRO-3"},
      {.name = "ZeRO-2", .options = resharded(false)},
      {.name = "bfloat16", .options = mixed(at::kBFloat16, at::kFloat), .tolerance = 0.02},
      {.name = "bfloat16, accumulated",
       .options = mixed(at::kBFloat16, at::kFloat),
       .microbatches = 3,
       .tolerance = 0.02},
      {.name = "float16", .options = mixed(at::kHalf, at::kFloat), .tolerance = 0.005},
      {.name = "recomputed", .checkpoint = true},
      {.name = "accumulated", .microbatches = 3},
      {.name = "reduced once", .microbatches = 3, .before_backward = sync_last},
      {.name = "reduced each time, ended once",
       .microbatches = 3,
       .before_backward = [](Net& net, int, bool last) { fsdp::set_is_last_backward(net, last); }},
      {.name = "gathered until the last",
       .microbatches = 2,
       .before_backward =
           [](Net& net, int, bool last) {
             sync_last(net, 0, last);
             fsdp::set_reshard_after_backward(net, last);
           }},
      {.name = "gathered by hand", .after_step = gather_by_hand},
      {.name = "a part of it runs", .after_step = run_a_part},
      {.name = "prefetch by lists", .prepare = prefetch},
      {.name = "offload", .options = offloaded()},
      {.name = "offload, accumulated", .options = offloaded(), .microbatches = 2},
  };
}

std::vector<Mode> modes_of_four() {
  const auto all_reduce_last = [](Net& net, int, bool last) { fsdp::set_requires_all_reduce(net, last); };
  return {
      {.name = "integer reshard", .options = resharded(2)},
      {.name = "replicas", .mesh = {2, 2}},
      {.name = "replicas, integer reshard in float16", .mesh = {1, 4}, .options = resharded(2)},
      {.name = "partial sums", .mesh = {2, 2}, .microbatches = 3, .before_backward = all_reduce_last},
      {.name = "data parallel", .mesh = {4, 1}},
      {.name = "data parallel, partial sums", .mesh = {4, 1}, .microbatches = 2, .before_backward = all_reduce_last},
  };
}

class SimulatedFsdp : public testing::TestWithParam<int> {
 protected:
  SimulatedFsdp() { sim::install(); }
};

TEST_P(SimulatedFsdp, RunsCleanInEachMode) {
  test::on_ranks(
      GetParam(),
      [](dist::World& world) {
        for (const auto& mode : modes_of_any_size()) expect_clean(mode, world);
        if (world.size() != 4) return;
        for (const auto& mode : modes_of_four()) expect_clean(mode, world);
      },
      sim::device().type());
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedFsdp, testing::Values(1, 2, 4));

}  // namespace
}  // namespace titan
