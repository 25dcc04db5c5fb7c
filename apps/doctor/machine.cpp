#include "apps/doctor/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "base/text.h"
#include "distributed/device.h"
#include "kernels/mkl_path.h"
#include "kernels/operators.h"

namespace titan::doctor {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Returns the text of a file, "" if it does not exist (on other systems).
std::string text_of(const char* path) {
  std::ostringstream text;
  if (const std::ifstream file(path); file) text << file.rdbuf();
  return text.str();
}

// Returns the value of the first line "key   : value", "" without one.
std::string value_of(std::string_view text, std::string_view key) {
  for (const auto& line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon != std::string::npos && trim(line.substr(0, colon)) == key)
      return std::string(trim(line.substr(colon + 1)));
  }
  return "";
}

std::int64_t limit_of(decltype(RLIMIT_NOFILE) what) {
  rlimit limit{};
  if (getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::int64_t shared_memory_bytes() {
  struct statvfs disk {};
  if (statvfs("/dev/shm", &disk) != 0) return -1;
  return static_cast<std::int64_t>(disk.f_blocks) * static_cast<std::int64_t>(disk.f_frsize);
}

Check check_devices(c10::DeviceType device_type) {
  const std::string driver = value_of(text_of("/proc/driver/nvidia/version"), "NVRM version");
  if (device_type == c10::DeviceType::CPU) {
    const std::string missing = dist::load_accelerator_module();
    if (missing.empty()) return ok("devices", "GPUs are here, and training.device = \"cpu\" leaves them alone");
    if (driver.empty() && !dist::has_cuda_device()) return ok("devices", "CPU alone: " + missing);
    return failure(
        "devices",
        "an NVIDIA driver" + (driver.empty() ? "" : " (" + driver + ")") + " without a device to use: " + missing,
        "see what nvidia-smi says, CUDA_VISIBLE_DEVICES, and whether this build has the CUDA module");
  }
  const auto* gpus = dist::accelerator();
  std::map<std::string, int> numbers;
  for (int i = 0; i < gpus->device_count(); ++i)
    ++numbers[gpus->device_name(i) + " of " + bytes_text(gpus->device_capacity_bytes(i))];
  std::vector<std::string> kinds;
  for (const auto& [name, number] : numbers) kinds.push_back(std::to_string(number) + " x " + name);
  return ok("devices", join(kinds, ", ") + (driver.empty() ? "" : "; driver " + driver));
}

}  // namespace

Check check_cpu(std::string_view cpuinfo) {
  const auto flags = split(value_of(cpuinfo, "flags"), ' ');
  const auto has = [&](std::string_view flag) { return std::ranges::find(flags, flag) != flags.end(); };
  std::vector<std::string> sets;
  for (const auto& [flag, name] : {std::pair("avx2", "AVX2"), std::pair("avx512f", "AVX-512"),
                                   std::pair("avx512_bf16", "AVX-512 BF16"), std::pair("amx_bf16", "AMX BF16")})
    if (has(flag)) sets.emplace_back(name);
  const std::string name = value_of(cpuinfo, "model name");
  const std::string found = (name.empty() ? "unknown processor" : name) + ": " +
                            (sets.empty() ? "none of AVX2, AVX-512 and AMX" : join(sets, ", ")) +
                            "; torch computes with " + at::get_cpu_capability() +
                            (kernels::mkl_takes_fast_code() ? ", MKL's fast code" : "") +
                            (kernels::uses_fused_kernels(c10::DeviceType::CPU) ? ", own kernels" : "");
  if (has("avx2") || flags.size() < 2) return ok("CPU", found);
  return warning("CPU", found, "training on this processor is several times slower than on one with AVX2");
}

Check check_threads(std::int64_t cores, std::int64_t threads, std::int64_t ranks, bool have_gpus) {
  const std::string found =
      counted(ranks, "rank") + " with " + counted(threads, "thread") + " on " + counted(cores, "core");
  if (threads * ranks <= cores) return ok("threads", found);
  // A rank drives one GPU, so fewer ranks would leave GPUs unused.
  const std::string advice = have_gpus ? "give the job " + counted(ranks, "core") +
                                             " (srun --cpus-per-task, the container's limit), one for each "
                                             "rank, which launches its GPU's kernels"
                                       : "start " + counted(cores, "rank");
  return warning(
      "threads", found,
      counted(threads * ranks, "thread") + " share " + counted(cores, "core") + ": " +
          (ranks > cores ? advice + (threads > 1 ? ", and " : "") : "") +
          (threads > 1 ? "set OMP_NUM_THREADS=" + std::to_string(std::max<std::int64_t>(1, cores / ranks)) : ""));
}

Check check_memory(const FreeMemory& free, std::int64_t ranks) {
  const std::string found = bytes_text(free.bytes) + " free on " + free.owner + " for " + counted(ranks, "rank");
  if (free.bytes / ranks >= kGiB) return ok("memory", found);
  return warning(
      "memory", found,
      "end what else runs here, raise the container's limit, or start fewer ranks; --dry-run says what a run "
      "takes");
}

Check check_open_files(std::int64_t limit, std::int64_t world_size) {
  const std::int64_t needed = 256 + 8 * world_size;
  if (limit < 0) return ok("open files", "no limit");
  const std::string found = "at most " + with_thousands(limit);
  if (limit >= needed) return ok("open files", found);
  return failure("open files", found + ", where " + counted(world_size, "rank") + " may need " + with_thousands(needed),
                 "raise it with ulimit -n 65536, or LimitNOFILE= of the service that starts the ranks");
}

Check check_shared_memory(std::int64_t bytes, bool uses_nccl, std::int64_t ranks) {
  if (bytes < 0)
    return uses_nccl ? failure("/dev/shm", "is not there", "mount a tmpfs there: NCCL exchanges through it")
                     : ok("/dev/shm", "is not there, and CPU ranks do without");
  const std::string found = bytes_text(bytes);
  const std::int64_t needed = std::max<std::int64_t>(ranks, 2) * (kGiB / 8);
  if (bytes >= needed) return ok("/dev/shm", found);
  const std::string advice =
      "NCCL and other programs' data loaders fail when it is full: start the container with "
      "--shm-size=8g, or --ipc=host";
  if (uses_nccl && ranks > 1) return failure("/dev/shm", found + ", too small for " + counted(ranks, "rank"), advice);
  return warning("/dev/shm", found + ", enough for CPU ranks alone, which do not use it", advice);
}

Check check_locked_memory(std::int64_t bytes, bool has_infiniband) {
  if (bytes < 0) return ok("locked memory", "no limit");
  const std::string found = "at most " + bytes_text(bytes);
  if (!has_infiniband) return ok("locked memory", found + "; only InfiniBand needs more, and there is none");
  return warning("locked memory", found, "InfiniBand needs ulimit -l unlimited, else NCCL falls back to sockets");
}

Checks check_machine(const LaunchEnv& launch, c10::DeviceType device_type) {
  const bool uses_nccl = device_type != c10::DeviceType::CPU;
  const auto ranks = launch.local_world_size;
  Checks checks = {
      check_cpu(text_of("/proc/cpuinfo")),
  };
  if (launch.local_rank == 0) checks.push_back(check_memory(free_memory(), ranks));
  checks.insert(checks.end(),
                {check_devices(device_type), check_open_files(limit_of(RLIMIT_NOFILE), launch.world_size),
                 check_shared_memory(shared_memory_bytes(), uses_nccl, ranks),
                 check_locked_memory(limit_of(RLIMIT_MEMLOCK), std::filesystem::exists("/dev/infiniband"))});
  return checks;
}

}  // namespace titan::doctor
