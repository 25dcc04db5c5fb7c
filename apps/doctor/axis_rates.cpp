#include "apps/doctor/axis_rates.h"

#include <ATen/ATen.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "apps/doctor/best_seconds.h"
#include "distributed/parallel_dims.h"

namespace titan::doctor {
namespace {

constexpr std::int64_t kLarge = std::int64_t{64} << 20, kSmall = 4096;  // bytes

struct Buffers {
  at::Tensor part;   // [n]
  at::Tensor whole;  // [size * n]
};

using Exchange = std::function<void(dist::ProcessGroup& group, const Buffers& buffers)>;

void all_gather(dist::ProcessGroup& group, const Buffers& buffers) {
  group.all_gather(buffers.whole, buffers.part).wait();
}

void reduce_scatter(dist::ProcessGroup& group, const Buffers& buffers) {
  group.reduce_scatter(buffers.part, buffers.whole, dist::ReduceOp::kSum).wait();
}

void all_reduce(dist::ProcessGroup& group, const Buffers& buffers) {
  group.all_reduce(buffers.part, dist::ReduceOp::kSum).wait();
}

// Sends to the next rank and receives from the one before. `is_ring`: the last sends to the first.
void pass_on(dist::ProcessGroup& group, const Buffers& buffers, bool is_ring) {
  const int rank = group.rank(), size = group.size();
  const auto received = buffers.whole.narrow(0, 0, buffers.part.numel());
  std::vector<dist::Transfer> sends, receives;
  if (is_ring || rank + 1 < size) sends.push_back({buffers.part, (rank + 1) % size});
  if (is_ring || rank > 0) receives.push_back({received, (rank + size - 1) % size});
  auto works = group.exchange(sends, receives);
  dist::wait_for_all(works);
}

void pass_along(dist::ProcessGroup& group, const Buffers& buffers) { pass_on(group, buffers, /*is_ring=*/false); }
void pass_around(dist::ProcessGroup& group, const Buffers& buffers) { pass_on(group, buffers, /*is_ring=*/true); }

struct Axis {
  const char* name;
  const dist::DeviceMesh* mesh;
  const char* what;
  Exchange exchange;
  bool is_divided;  // each rank has one of as many parts of what it ends up with
  const char* advice;
};

// Returns the longest time that any rank needs for an exchange in which each receives about `bytes`.
double slowest_seconds(dist::World& world, dist::ProcessGroup& group, const Axis& axis, std::int64_t bytes) {
  const std::int64_t numel = std::max<std::int64_t>(1, bytes / 4 / (axis.is_divided ? group.size() : 1));
  const auto options = at::TensorOptions().dtype(at::kFloat).device(world.device());
  const Buffers buffers{at::ones({numel}, options), at::ones({numel * group.size()}, options)};
  world.group().barrier();
  return longest_of_ranks(world.group(), best_seconds(world.device(), [&] { axis.exchange(group, buffers); }));
}

}  // namespace

Check check_axis(const std::string& name, const std::string& what, const AxisRate& rate, const std::string& advice) {
  constexpr double kSlow = 0.1e9;  // a gigabit network
  const double speed = rate.bytes / rate.seconds;
  const std::string found =
      fmt::format("{}: {:.2f} GB/s to each ({:.0f} MiB in {:.1f} ms), {:.0f} us for 4 KiB", what, speed / 1e9,
                  rate.bytes / (1 << 20), rate.seconds * 1e3, rate.small_seconds * 1e6);
  return speed >= kSlow ? ok("axis " + name, found) : warning("axis " + name, found, advice);
}

Checks check_axes(dist::World& world, const config::Parallelism& parallelism) {
  const auto meshes = dist::Meshes::build(world, dist::ParallelDims::from_config(parallelism, world.size()));
  const bool is_ring = parallelism.context_parallel_rotate_method == "alltoall";
  const bool has_replicas = parallelism.data_parallel_replicate_degree > 1;
  const auto replicas = has_replicas ? meshes.fsdp.slice({"dp_replicate"}) : meshes.fsdp;
  const auto shards = has_replicas ? meshes.fsdp.slice({"fsdp"}) : meshes.fsdp;
  const std::array axes = {
      Axis{"pp", &meshes.pp, "send and receive", pass_along, false,
           "stages wait for hidden states of each microbatch: take larger or fewer stages, or a faster network"},
      Axis{"dp_replicate", has_replicas ? &replicas : nullptr, "all-reduce", all_reduce, false,
           "replicas reduce all gradients in each step: accumulate more microbatches, or use a faster network"},
      Axis{"fsdp", &shards, "all-gather", all_gather, true,
           "sharded training moves every parameter three times a step: make data_parallel_shard_degree the ranks "
           "of one switch, or use a faster network"},
      Axis{"cp", &meshes.cp, is_ring ? "send and receive in a ring" : "all-gather", is_ring ? pass_around : all_gather,
           !is_ring, "ranks of a sequence exchange keys and values in each block: keep cp inside a switch"},
      Axis{"tp", &meshes.tp, "reduce-scatter", reduce_scatter, true,
           "ranks of a layer exchange activations between the matmuls: keep tp inside a host that NVLink joins"}};
  Checks checks;
  for (const Axis& axis : axes) {
    if (!axis.mesh || axis.mesh->size() == 1) continue;
    auto& group = axis.mesh->group();
    const auto size = static_cast<double>(group.size());
    const AxisRate rate{static_cast<double>(kLarge) * (axis.is_divided ? (size - 1) / size : 1),
                        slowest_seconds(world, group, axis, kLarge), slowest_seconds(world, group, axis, kSmall)};
    checks.push_back(
        check_axis(axis.name, fmt::format("{} between {} ranks", axis.what, group.size()), rate, axis.advice));
  }
  return checks;
}

}  // namespace titan::doctor
