#include "base/process/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "base/limits/control_group.h"
#include "base/process/rank_process.h"
#include "base/text.h"

namespace titan {
namespace {

// The system's masks may be longer than cpu_set_t, whose 1,024 bits are too few for some machines.
std::vector<int> cores_of_mask() {
  for (int count = 1024; count <= 1 << 20; count *= 4) {
    cpu_set_t* set = CPU_ALLOC(count);
    const std::size_t size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set);
    const bool fits = ::sched_getaffinity(0, size, set) == 0;
    std::vector<int> cores;
    for (int core = 0; fits && core < count; ++core)
      if (CPU_ISSET_S(core, size, set)) cores.push_back(core);
    CPU_FREE(set);
    if (fits) return cores;
  }
  return {};
}

// cgroups(7): "QUOTA PERIOD" in version 2, two files in version 1; "max" and -1 mean that there is no limit.
std::optional<double> quota_of(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::ifstream file(folder + "/cpu.max"); file >> quota >> period && period > 0) return quota / period;
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

// The limits of all parent groups apply too.
std::optional<double> control_group_quota() {
  std::optional<double> least;
  for (const std::string& folder : control_group_folders("cpu"))
    if (const auto quota = quota_of(folder)) least = std::min(least.value_or(*quota), *quota);
  return least;
}

}  // namespace

Processors own_processors() {
  const std::string host = host_name();
  Processors out{.host = host.empty() ? "-" : host, .cores = cores_of_mask()};
  const auto machine = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  out.quota = out.cores.empty() ? machine : std::ssize(out.cores);
  if (const auto quota = control_group_quota())
    out.quota = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(*quota)), 1, out.quota);
  return out;
}

std::string to_text(const Processors& processors) {
  std::vector<std::string> cores;
  for (const int core : processors.cores) cores.push_back(std::to_string(core));
  return processors.host + " " + (cores.empty() ? "-" : join(cores, ",")) + " " + std::to_string(processors.quota);
}

Processors parse_processors(const std::string& text) {
  Processors out;
  std::string cores;
  std::istringstream(text) >> out.host >> cores >> out.quota;
  if (cores != "-")
    for (const auto& core : split(cores, ',')) out.cores.push_back(std::stoi(core));
  return out;
}

ProcessorShare share_of_rank(const std::vector<Processors>& all, std::size_t rank) {
  const Processors& mine = all.at(rank);
  const std::set<int> own(mine.cores.begin(), mine.cores.end());
  std::set<int> any;
  std::int64_t sharing = 0, quota = mine.quota;
  ProcessorShare share{.ranks = 0};
  for (const Processors& each : all) {
    if (each.host != mine.host) continue;
    ++share.ranks;
    quota = std::max(quota, each.quota);
    any.insert(each.cores.begin(), each.cores.end());
    sharing += own.empty() || std::ranges::any_of(each.cores, [&](int core) { return own.contains(core); });
  }
  const bool has_quota = mine.quota < std::ssize(mine.cores);
  share.cores = any.empty() || has_quota ? quota : std::ssize(any);
  const std::int64_t cores = own.empty() ? mine.quota : std::ssize(own);
  share.threads = std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, sharing));
  if (has_quota) share.threads = std::clamp<std::int64_t>(mine.quota / share.ranks, 1, share.threads);
  return share;
}

}  // namespace titan
