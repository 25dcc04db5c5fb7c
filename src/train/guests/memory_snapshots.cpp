#include "train/guests/memory_snapshots.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/phase.h"
#include "config/keys/rank_list.h"
#include "distributed/device.h"

namespace titan::train {
namespace {

constexpr std::size_t kMaxEntries = 100000;  // as in TorchTitan

std::filesystem::path snapshots_folder(const config::JobConfig& config) {
  return std::filesystem::path(config.job.dump_folder) / config.profiling.save_memory_snapshot_folder;
}

// Writes a snapshot. A failure only warns: it must neither end training nor hide an out-of-memory error.
void write_snapshot(const std::filesystem::path& folder, std::int64_t rank) {
  const auto path = folder / fmt::format("rank{}_memory_snapshot.pickle", rank);
  try {
    std::filesystem::create_directories(folder);
    write_file_atomically(path, dist::accelerator()->memory_snapshot());
    spdlog::info("wrote {}; pytorch.org/memory_viz shows it", path.string());
  } catch (const std::exception& error) {
    spdlog::warn("the memory snapshot could not be written to {}: {}", path.string(), error.what());
  }
}

}  // namespace

MemorySnapshots::MemorySnapshots(const config::JobConfig& config, const dist::World& world)
    : config_(config),
      is_watched_(config::RankList(config.profiling.ranks).contains(world.rank())),
      rank_(world.rank()) {
  TITAN_CHECK(world.device().is_cuda(), "memory snapshots of a CPU");  // rejected earlier (pick_device.h)
  spdlog::info("memory snapshots are on: every {} steps in {}", config.profiling.profile_freq,
               snapshots_folder(config).string());
  if (!is_watched_) return;
  dist::accelerator()->record_memory_history(kMaxEntries, [folder = snapshots_folder(config), rank = rank_] {
    const auto finished = std::max<std::int64_t>(phase_log().step() - 1, 0);
    write_snapshot(folder / fmt::format("iteration_{}_exit", finished), rank);
  });
}

Verdict MemorySnapshots::after_step(const StepView& step) {
  if (!is_watched_ || step.number % config_.profiling.profile_freq != 0) return Verdict::go_on();
  const PhaseScope phase(Phase::kLog);
  write_snapshot(snapshots_folder(config_) / fmt::format("iteration_{}", step.number), rank_);
  return Verdict::go_on();
}

}  // namespace titan::train
