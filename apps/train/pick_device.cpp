#include "apps/train/pick_device.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "distributed/device.h"

namespace titan {

std::size_t num_visible_devices(const std::string& list) {
  std::set<std::string> names;
  for (const auto& name : split(list, ',')) {
    if (name.empty() || name.starts_with('-')) break;
    if (!names.insert(name).second) return 0;
  }
  return names.size();
}

void check_num_devices(std::size_t count, const std::string& source, const LaunchEnv& launch) {
  // A single visible device may be a different one for each rank: a launcher that binds devices shows each rank only
  // its own. The ranks compare their devices when they have met (World).
  if (count == 1 || count >= static_cast<std::size_t>(launch.local_world_size) ||
      get_env("TITAN_DEVICE_COMM") == "gloo")
    return;
  throw ConfigError(
      "error: " + source + " gives " + std::to_string(count) + " CUDA device(s) to the " +
      std::to_string(launch.local_world_size) +
      " ranks of this machine, and each takes one of its own; start at most that many ranks here, or show "
      "each rank its own alone "
      "(TITAN_DEVICE_COMM=gloo lets ranks share a device, slowly, for tests)");
}

namespace {

// Throws ConfigError if this build has no kernels for a device that the ranks of this machine use; other devices may
// be of any age.
void check_kernels(const dist::AcceleratorModule& gpus, const LaunchEnv& launch) {
  const auto taken = std::min<std::int64_t>(gpus.device_count(), std::max<std::int64_t>(launch.local_world_size, 1));
  for (int index = 0; gpus.why_no_kernels && index < taken; ++index)
    if (const auto reason = gpus.why_no_kernels(index); !reason.empty())
      throw ConfigError("error: device " + std::to_string(index) + ": " + reason);
}

c10::DeviceType find_device_type(const config::JobConfig& config, const LaunchEnv& launch) {
  const std::string& wanted = config.training.device;
  if (wanted == "cpu") return c10::DeviceType::CPU;
  const auto visible = get_env("CUDA_VISIBLE_DEVICES");
  if (wanted == "cuda" && visible)
    check_num_devices(num_visible_devices(*visible), "CUDA_VISIBLE_DEVICES=" + *visible, launch);
  const std::string missing = dist::load_accelerator_module();
  if (missing.empty()) {
    check_num_devices(static_cast<std::size_t>(dist::accelerator()->device_count()), "this machine", launch);
    check_kernels(*dist::accelerator(), launch);
    return dist::accelerator()->type;
  }
  if (wanted == "cuda") throw ConfigError("training.device = \"cuda\", but " + missing);
  return c10::DeviceType::CPU;
}

}  // namespace

c10::DeviceType pick_device_type(const config::JobConfig& config, const LaunchEnv& launch) {
  const auto type = find_device_type(config, launch);
  train::check_dtypes(config, device_of_a_rank(config, 1));
  if (type == c10::DeviceType::CPU && config.profiling.enable_memory_snapshot)
    throw ConfigError(
        "profiling.enable_memory_snapshot needs a GPU, whose allocator it looks at, and this run is on CPU; set it to "
        "false",
        {"profiling.enable_memory_snapshot"});
  return type;
}

train::Device device_of_a_rank(const config::JobConfig& config, std::int64_t local_ranks) {
  if (config.training.device != "cpu" && dist::load_accelerator_module().empty()) {
    const auto* gpu = dist::accelerator();
    return train::device_of_model(gpu->device_name(0), static_cast<std::int64_t>(gpu->device_capacity_bytes(0)));
  }
  const std::int64_t host = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return {"this machine's memory, " + std::to_string(local_ranks) + " rank(s) on it", host / local_ranks,
          /*has_bfloat16=*/true, /*is_gpu=*/false};
}

}  // namespace titan
