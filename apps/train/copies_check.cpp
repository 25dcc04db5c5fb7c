#include "apps/train/copies_check.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "base/fs.h"
#include "base/text.h"
#include "checkpoint/memory_copies.h"
#include "config/paths.h"
#include "train/dry_run/dry_run.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderKey = "checkpoint.memory_folder";
constexpr const char* kIntervalKey = "checkpoint.memory_interval";

bool makes_copies(const config::Checkpoint& options) {
  return options.enable && !options.load_only && !options.create_seed_checkpoint && options.memory_interval > 0;
}

double bytes_below(const fs::path& folder) {
  double bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_regular_file(error)) bytes += static_cast<double>(entry->file_size(error));
  return bytes;
}

}  // namespace

std::optional<config::Fault> find_no_copies(const config::JobConfig& config, const LaunchEnv& launch) {
  const config::Checkpoint& options = config.checkpoint;
  if (!makes_copies(options)) return std::nullopt;
  const std::string interval = std::to_string(options.memory_interval);
  if (launch.local_world_size != launch.world_size)
    return config::Fault{
        "checkpoint.memory_interval = " + interval + " makes copies in the memory of one machine, and of the " +
            counted(launch.world_size, "rank") + " of this job " + std::to_string(launch.local_world_size) +
            " are on this one: no machine would hold a full copy. Set it to 0, and checkpoint.interval as low as "
            "the disk allows",
        {kIntervalKey}};
  const std::string name = checkpoint::file_system_on_disk(options.memory_folder);
  if (name.empty()) return std::nullopt;
  return config::Fault{"checkpoint.memory_folder = \"" + options.memory_folder +
                           "\" is not on a file system in memory, but on " + name +
                           ": set it to a folder on a tmpfs, such as /dev/shm/titan-train, or set "
                           "checkpoint.memory_interval = 0 and a smaller checkpoint.interval",
                       {kFolderKey, kIntervalKey}};
}

std::optional<config::Fault> find_lack_for_copies(const config::JobConfig& config, const TrainSpec& spec,
                                                  std::int64_t free_bytes) {
  const config::Checkpoint& options = config.checkpoint;
  if (!makes_copies(options)) return std::nullopt;
  const auto copies = checkpoint::find_copies(options.memory_folder, config::checkpoint_folder(config));
  const double own = copies.empty() ? 0 : bytes_below(copies);
  std::error_code error;
  const auto space = fs::space(existing_part(options.memory_folder), error);
  auto room = static_cast<double>(free_bytes) + own;
  if (!error && space.capacity > 0) room = std::min(room, static_cast<double>(space.available) + own);
  const double needed = 2 * static_cast<double>(train::checkpoint_size(config, spec.stats).full);
  if (needed <= room) return std::nullopt;
  return config::Fault{"copies of the state in memory go to " + options.memory_folder + ", where " +
                           format_bytes(room) + " are free, and two copies, the newest and the next, take " +
                           format_bytes(needed) +
                           ": make room, or set checkpoint.memory_interval = 0. --no-preflight starts all the same",
                       {kFolderKey, kIntervalKey}};
}

}  // namespace titan
