// Tests on real ranks that every bit which changes in memory is found and named, in every kind of tensor and on each
// kind of mesh, and that nothing is reported where nothing changed.
#include "train/guests/numerics/memory_check.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>

#include "base/process/rank_process.h"
#include "kernels/operators.h"
#include "models/registry.h"
#include "optim/adamw.h"
#include "tests/support/run_ranks.h"
#include "train/build_model.h"
#include "train/guests/numerics/gather_check.h"
#include "train/guests/numerics/update_watch.h"
#include "train/setup.h"

namespace titan::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kRowLength = 8, kTokens = 64;

config::JobConfig job_on_mesh(int replicate, int shard, int tp = 1, int pp = 1) {
  config::JobConfig job;
  job.model.args.dim = 32;
  job.model.args.n_layers = 2;
  job.model.args.n_heads = 4;
  job.model.args.n_kv_heads = 2;
  job.model.args.vocab_size = kTokens;
  job.model.args.multiple_of = 8;
  job.activation_checkpoint.mode = "none";
  job.parallelism.data_parallel_replicate_degree = replicate;
  job.parallelism.data_parallel_shard_degree = shard;
  job.parallelism.tensor_parallel_degree = tp;
  job.parallelism.pipeline_parallel_degree = pp;
  job.training.local_batch_size = 2;
  return job;
}

config::JobConfig with_adapters(config::JobConfig job) {
  job.lora.rank = 2;
  job.lora.targets = {"layers.1.attention.wq"};
  job.lora.base_dtype = "bfloat16";
  return job;
}

config::JobConfig in_float32(config::JobConfig job) {
  job.training.mixed_precision_param = "float32";
  return job;
}

// A tensor of this rank that only the update may write.
struct Place {
  std::string name;
  at::Tensor tensor;
};

// Inverts a bit as a fault of memory does: torch does not learn of it.
void flip(const at::Tensor& tensor, std::uint64_t bit) {
  bit %= static_cast<std::uint64_t>(tensor.nbytes()) * 8;
  static_cast<std::uint8_t*>(tensor.data_ptr())[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
}

// Trains a small model without a train loop.
struct TrainedModel {
  TrainedModel(dist::World& world_, const config::JobConfig& job_)
      : world(world_),
        job(job_),
        meshes(dist::Meshes::build(world, dist::ParallelDims::from_config(job.parallelism, world.size()))),
        spec(models::make_train_spec(job.model, job.lora, kRowLength)),
        built(build_on_meta(spec, std::nullopt, {meshes, job}, at::kCPU)) {
    materialize(*built.model, at::kCPU, job);
    draw_weights(*built.model, at::kCPU, /*seed=*/7);
    parameters.emplace(*built.model, built.slots, stored_dtypes(job));
    optimizer.emplace(parameters->to_train(), optim::AdamWOptions{});
    check.emplace(*parameters, *optimizer);
    gathers.emplace(*built.model, /*with_gradients=*/true);
  }

  void run_microbatch() {
    const auto rows = at::randint(kTokens, {2, kRowLength + 1}, at::kLong);
    const Batch batch{rows.narrow(1, 0, kRowLength).contiguous(), rows.narrow(1, 1, kRowLength).contiguous()};
    built.forward_backward->forward_backward(batch, [](const at::Tensor& loss) { return loss / 16; });
  }

  std::vector<Place> places() {
    std::vector<Place> out;
    for (const auto& each : *parameters)
      if (each.local) out.push_back({each.fqn, each.local->tensor()});
    for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
      for (const auto& state : optimizer->state(i))
        out.push_back({state.name + " of " + optimizer->parameters()[i].fqn, state.tensor});
    std::erase_if(out, [](const Place& place) { return place.tensor.numel() == 0; });
    return out;
  }

  // Calls `act` with the parameter while `name` is gathered, in the next call of its module.
  void while_gathered(const std::string& module, const std::string& parameter,
                      const std::function<void(const at::Tensor&)>& act) {
    for (const auto& [fqn, each] : built.model->named_modules()) {
      if (fqn != module) continue;
      each->add_pre_hook([act, parameter, is_done = false](nn::Module& called, nn::Tensors&) mutable {
        if (std::exchange(is_done, true)) return;
        for (const auto& named : called.named_parameters())
          if (named.fqn == parameter) act(named.tensor());
      });
    }
  }

  dist::World& world;
  config::JobConfig job;
  dist::Meshes meshes;
  TrainSpec spec;
  BuiltModel built;
  std::optional<RunParameters> parameters;
  std::optional<optim::AdamW> optimizer;
  std::optional<MemoryCheck> check;
  std::optional<GatherCheck> gathers;
};

void take_step(TrainedModel& model) {
  model.optimizer->zero_grad();
  for (int i = 0; i < 2; ++i) model.run_microbatch();
  model.optimizer->step();
}

// Draws 200 bits of all ranks' tensors, the same on every rank, and expects that each is found.
void expect_every_flip_is_found(int ranks, const config::JobConfig& job, std::uint64_t seed) {
  test::on_ranks(ranks, [&](dist::World& world) {
    TrainedModel model(world, job);
    take_step(model);
    const auto places = model.places();
    const auto before = model.check->hash(/*with_state=*/true);
    std::mt19937_64 draw(seed);
    for (int i = 0; i < 200; ++i) {
      const auto rank = static_cast<int>(draw() % static_cast<std::uint64_t>(ranks));
      const std::uint64_t which = draw(), bit = draw();
      const Place& place = places[which % places.size()];
      const bool is_mine = rank == world.rank();
      if (is_mine) flip(place.tensor, bit);
      const auto changed = changed_between(before, model.check->hash(true));
      if (is_mine) {
        ASSERT_THAT(changed, ElementsAre(place.name)) << i;
        flip(place.tensor, bit);
      } else {
        ASSERT_THAT(changed, IsEmpty()) << i;
      }
    }
    EXPECT_THAT(changed_between(before, model.check->hash(true)), IsEmpty());
  });
}

TEST(MemoryCheck, FindsFlipsOnOneRank) { expect_every_flip_is_found(1, job_on_mesh(1, 1), 1); }
TEST(MemoryCheck, FindsFlipsInShards) { expect_every_flip_is_found(2, job_on_mesh(1, 2), 2); }
TEST(MemoryCheck, FindsFlipsInShardsOfReplicas) { expect_every_flip_is_found(4, job_on_mesh(2, 2), 3); }
TEST(MemoryCheck, FindsFlipsUnderTensorParallelism) { expect_every_flip_is_found(2, job_on_mesh(1, 1, 2), 4); }
TEST(MemoryCheck, FindsFlipsInFrozenWeights) { expect_every_flip_is_found(2, with_adapters(job_on_mesh(1, 2)), 5); }

// Returns the weights and moments of this rank that the update writes.
std::vector<Place> updated_places(TrainedModel& model) {
  std::vector<Place> out;
  for (std::size_t i = 0; i < model.optimizer->parameters().size(); ++i) {
    const auto& [fqn, tensor, sharding] = model.optimizer->parameters()[i];
    out.push_back({fqn, tensor});
    for (const auto& state : model.optimizer->state(i))
      if (state.is_like_parameter) out.push_back({state.name + " of " + fqn, state.tensor});
  }
  std::erase_if(out, [](const Place& place) { return place.tensor.numel() == 0; });
  return out;
}

// Draws 40 bits, the same on every rank, each of which changes between two updates, and expects that the second finds
// it. Numbers may become infinite meanwhile: bits are compared, not values.
void expect_updates_find_flips(int ranks, const config::JobConfig& job, std::uint64_t seed) {
  test::on_ranks(ranks, [&](dist::World& world) {
    TrainedModel model(world, job);
    UpdateWatch watch(*model.optimizer);
    take_step(model);
    EXPECT_THAT(watch.changed_before_update(), IsEmpty());
    const auto places = updated_places(model);
    std::mt19937_64 draw(seed);
    for (int i = 0; i < 40; ++i) {
      take_step(model);
      ASSERT_THAT(watch.changed_before_update(), IsEmpty()) << i;
      const auto rank = static_cast<int>(draw() % static_cast<std::uint64_t>(ranks));
      const Place& place = places[draw() % places.size()];
      const std::uint64_t bit = draw();
      const bool is_mine = rank == world.rank();
      if (is_mine) flip(place.tensor, bit);
      take_step(model);
      const auto changed = watch.changed_before_update();
      if (is_mine) {
        ASSERT_THAT(changed, ElementsAre(place.name)) << i;
      } else {
        ASSERT_THAT(changed, IsEmpty()) << i;
      }
    }
  });
}

TEST(UpdateWatch, FindsFlipsOnOneRank) { expect_updates_find_flips(1, job_on_mesh(1, 1), 21); }
TEST(UpdateWatch, FindsFlipsInShards) { expect_updates_find_flips(2, job_on_mesh(1, 2), 22); }
TEST(UpdateWatch, FindsFlipsInShardsOfReplicas) { expect_updates_find_flips(4, job_on_mesh(2, 2), 23); }
TEST(UpdateWatch, FindsFlipsUnderTensorParallelism) { expect_updates_find_flips(2, job_on_mesh(1, 1, 2), 24); }
TEST(UpdateWatch, FindsFlipsInAdapters) { expect_updates_find_flips(2, with_adapters(job_on_mesh(1, 2)), 25); }
TEST(UpdateWatch, FindsFlipsInTiedStages) {
  auto job = job_on_mesh(1, 1, 1, 2);
  job.model.args.enable_weight_tying = true;
  expect_updates_find_flips(2, job, 26);
}

TEST(UpdateWatch, ComparesWhatIsRestoredWithWhatTheUpdateBeforeWrote) {
  test::on_ranks(1, [](dist::World& world) {
    TrainedModel model(world, job_on_mesh(1, 1));
    UpdateWatch watch(*model.optimizer);
    take_step(model);
    watch.changed_before_update();
    const auto places = updated_places(model);
    std::vector<at::Tensor> saved;
    for (const Place& place : places) saved.push_back(place.tensor.clone());
    take_step(model);
    watch.changed_before_update();
    EXPECT_EQ(watch.changed_in_restored().size(), places.size());
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < places.size(); ++i) places[i].tensor.copy_(saved[i]);
    EXPECT_THAT(watch.changed_in_restored(), IsEmpty());
    flip(places[4].tensor, 77);
    EXPECT_THAT(watch.changed_in_restored(), ElementsAre(places[4].name));
  });
}

// After a load nothing is known, and with ATen's kernels nothing is ever.
TEST(UpdateWatch, CoversWhatAnUpdateHasSummed) {
  test::on_ranks(1, [](dist::World& world) {
    TrainedModel model(world, job_on_mesh(1, 1));
    UpdateWatch watch(*model.optimizer);
    EXPECT_FALSE(watch.covers(0));
    take_step(model);
    watch.changed_before_update();
    EXPECT_TRUE(watch.covers(0));
    const auto without = model.check->hash(/*with_state=*/true, [&](std::size_t index) { return watch.covers(index); });
    for (const auto& name : without.tensors) EXPECT_TRUE(name.starts_with("step of ")) << name;
    watch.reset();
    EXPECT_FALSE(watch.covers(0));
    flip(model.optimizer->parameters()[0].tensor, 5);
    take_step(model);
    EXPECT_THAT(watch.changed_before_update(), IsEmpty());
    kernels::use_fused_kernels(c10::DeviceType::CPU, false);
    watch.reset();
    take_step(model);
    EXPECT_THAT(watch.changed_before_update(), IsEmpty());
    EXPECT_FALSE(watch.covers(0));
    kernels::use_fused_kernels(c10::DeviceType::CPU, true);
  });
}

TEST(MemoryCheck, ReportsTheTensorsOfAllRanks) {
  test::on_ranks(2, [](dist::World& world) {
    TrainedModel model(world, job_on_mesh(1, 2));
    const auto before = model.check->hash(/*with_state=*/false);
    if (world.rank() == 1) flip(model.parameters->begin()->local->tensor(), 30);
    const auto report = gather_changes(changed_between(before, model.check->hash(false)), world.group());
    EXPECT_THAT(report.ranks(), ElementsAre(1));
    EXPECT_EQ(describe(report), "tok_embeddings.weight on rank 1 (" + host_name() + ")");
  });
}

// Steps with two microbatches, in which nothing but training writes.
void expect_no_false_alarm(int ranks, const config::JobConfig& job) {
  test::on_ranks(ranks, [&](dist::World& world) {
    TrainedModel model(world, job);
    take_step(model);
    for (int step = 0; step < 3; ++step) {
      const auto before = model.check->hash(/*with_state=*/true);
      model.gathers->begin();
      model.optimizer->zero_grad();
      for (int i = 0; i < 2; ++i) model.run_microbatch();
      EXPECT_THAT(model.gathers->end(), IsEmpty());
      EXPECT_THAT(changed_between(before, model.check->hash(true)), IsEmpty());
      model.optimizer->step();
      EXPECT_FALSE(changed_between(before, model.check->hash(true)).empty());
    }
  });
}

TEST(MemoryCheck, NoFalseAlarmOnOneRank) {
  expect_no_false_alarm(1, job_on_mesh(1, 1));
  expect_no_false_alarm(1, in_float32(job_on_mesh(1, 1)));
}
TEST(MemoryCheck, NoFalseAlarmInShards) { expect_no_false_alarm(2, job_on_mesh(1, 2)); }
TEST(MemoryCheck, NoFalseAlarmInFloat32) { expect_no_false_alarm(2, in_float32(job_on_mesh(1, 2))); }
TEST(MemoryCheck, NoFalseAlarmInSharedGathers) { expect_no_false_alarm(3, job_on_mesh(1, 3)); }
TEST(MemoryCheck, NoFalseAlarmWithReplicas) { expect_no_false_alarm(4, job_on_mesh(2, 2)); }
TEST(MemoryCheck, NoFalseAlarmUnderTensorParallelism) { expect_no_false_alarm(4, job_on_mesh(1, 2, 2)); }
TEST(MemoryCheck, NoFalseAlarmWithAdapters) { expect_no_false_alarm(2, with_adapters(job_on_mesh(1, 2))); }
TEST(MemoryCheck, NoFalseAlarmWithTiedWeights) {
  auto job = job_on_mesh(1, 2);
  job.model.args.enable_weight_tying = true;
  expect_no_false_alarm(2, job);
}
// Two stages sum the gradients of what they share after its reduction.
TEST(MemoryCheck, NoFalseAlarmWithTiedStages) {
  auto job = job_on_mesh(1, 1, 1, 2);
  job.model.args.enable_weight_tying = true;
  expect_no_false_alarm(2, job);
}

// Flips in gathered parameters, while a module uses them, and in gradients, before more is added to them and after.
void expect_flips_within_a_step_are_found(int ranks, const config::JobConfig& job, std::uint64_t seed) {
  test::on_ranks(ranks, [&](dist::World& world) {
    TrainedModel model(world, job);
    take_step(model);
    const std::vector<std::string> linears = {"attention.wq", "attention.wo", "feed_forward.w1", "feed_forward.w2"};
    std::mt19937_64 draw(seed);
    for (int i = 0; i < 20; ++i) {
      const auto rank = static_cast<int>(draw() % static_cast<std::uint64_t>(ranks));
      const std::uint64_t which = draw(), bit = draw(), kind = draw() % 3;
      const bool is_mine = rank == world.rank();
      const std::string module = "layers." + std::to_string(which % 2) + "." + linears[which / 2 % 4];
      const auto flip_gradient = [&] {
        for (const auto& each : model.optimizer->parameters())
          if (is_mine && each.fqn == module + ".weight") flip(each.tensor.grad(), bit);
      };
      model.gathers->begin();
      model.optimizer->zero_grad();
      if (kind == 0 && is_mine)
        model.while_gathered(module, "weight", [bit](const at::Tensor& weight) { flip(weight, bit); });
      model.run_microbatch();
      if (kind == 1) flip_gradient();
      model.run_microbatch();
      if (kind == 2) flip_gradient();
      const auto changed = model.gathers->end();
      if (is_mine) {
        ASSERT_THAT(changed, ElementsAre((kind == 0 ? "gathered " : "gradient of ") + module + ".weight")) << i;
      } else {
        ASSERT_THAT(changed, IsEmpty()) << i;
      }
    }
  });
}

TEST(GatherCheck, FindsFlipsOnOneRank) { expect_flips_within_a_step_are_found(1, job_on_mesh(1, 1), 11); }
TEST(GatherCheck, FindsFlipsOverShards) { expect_flips_within_a_step_are_found(2, job_on_mesh(1, 2), 12); }
TEST(GatherCheck, FindsFlipsInFloat32) { expect_flips_within_a_step_are_found(2, in_float32(job_on_mesh(1, 2)), 13); }
TEST(GatherCheck, FindsFlipsOverReplicas) { expect_flips_within_a_step_are_found(4, job_on_mesh(2, 2), 14); }
TEST(GatherCheck, FindsFlipsUnderTensorParallelism) {
  expect_flips_within_a_step_are_found(2, job_on_mesh(1, 1, 2), 15);
}

}  // namespace
}  // namespace titan::train
