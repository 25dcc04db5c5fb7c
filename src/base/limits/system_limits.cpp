#include "base/limits/system_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/limits/control_group.h"
#include "base/text.h"

namespace titan {
namespace {

std::optional<std::uint64_t> resource_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

struct GroupLimit {
  std::uint64_t most = 0;
  std::uint64_t used = 0;
};

// Returns the lowest limit of processes and threads of this process's control groups; nullopt if there is none.
std::optional<GroupLimit> lowest_pids_limit() {
  std::optional<GroupLimit> least;
  for (const std::string& folder : control_group_folders("pids")) {
    GroupLimit found;
    std::ifstream most(folder + "/pids.max"), used(folder + "/pids.current");
    if (!(most >> found.most) || (least && least->most <= found.most)) continue;  // "max" is not a number
    used >> found.used;
    least = found;
  }
  return least;
}

// The beginnings of the explanations.
const std::string kNoThreads = "no further thread or process can be started here";
const std::string kNoMemory = "out of memory";
const std::string kNoFiles = "this process may have no more";
const std::string kNoLargerFile = "the file has reached the size that this process may write";

std::string bytes(std::uint64_t count) { return format_bytes(static_cast<double>(count)); }

void add_address_space(std::vector<std::string>& limits) {
  if (const auto most = resource_limit(RLIMIT_AS)) limits.push_back(bytes(*most) + " of addresses (ulimit -v)");
}

// Returns the limits, or words for the machine's if this process has none of its own.
std::string list(const std::vector<std::string>& limits, const std::string& of_machine) {
  return limits.empty() ? "this process has no limit of its own, so it is " + of_machine
                        : "the limits of this process are " + join(limits, ", ");
}

std::string of_threads() {
  std::vector<std::string> limits;
  if (const auto most = resource_limit(RLIMIT_NPROC))
    limits.push_back(std::to_string(*most) + " processes and threads of its user (ulimit -u)");
  if (const auto group = lowest_pids_limit())
    limits.push_back(std::to_string(group->most) + " in its container or control group (pids.max; " +
                     std::to_string(group->used) + " are in use)");
  add_address_space(limits);
  return kNoThreads + "; " + list(limits, "the machine's (sysctl kernel.threads-max, kernel.pid_max)") +
         ". Raise the one that is reached, or start fewer ranks or threads (OMP_NUM_THREADS)";
}

std::string of_memory() {
  std::vector<std::string> limits;
  add_address_space(limits);
  if (const auto group = tightest_group_memory())
    limits.push_back(bytes(static_cast<std::uint64_t>(group->most)) +
                     " of memory in its container or control group (memory.max; " +
                     bytes(static_cast<std::uint64_t>(group->used)) + " are in use)");
  return kNoMemory + "; " + list(limits, "the memory of the machine") +
         ". Raise it, or start fewer ranks here; --dry-run says what a run takes";
}

std::string of_open_files() {
  const auto most = resource_limit(RLIMIT_NOFILE);
  return kNoFiles + (most ? " than " + std::to_string(*most) + " open at a time" : "") +
         "; raise ulimit -Hn (LimitNOFILE of a service)";
}

std::string of_file_size() {
  const auto most = resource_limit(RLIMIT_FSIZE);
  return kNoLargerFile + (most ? ", at most " + bytes(*most) + ": raise that (ulimit -f)"
                               : "; its file system takes no larger one: use another");
}

struct Limit {
  std::string_view words;  // the system's
  const std::string& beginning;
  std::string (*explain)();
};

const Limit kLimits[] = {
    {"Resource temporarily unavailable", kNoThreads, of_threads},
    {"Too many open files", kNoFiles, of_open_files},
    {"File too large", kNoLargerFile, of_file_size},
    {"std::bad_alloc", kNoMemory, of_memory},
    {"Cannot allocate memory", kNoMemory, of_memory},
};

}  // namespace

std::string with_limits(const std::string& text) {
  try {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string line = text.substr(0, end);
    for (const auto& [words, beginning, explain] : kLimits)
      if (line.find(words) != std::string::npos && line.find(beginning) == std::string::npos)
        return line + ": " + explain() + text.substr(end);
  } catch (const std::exception&) {  // there is no memory for more words
  }
  return text;
}

std::string message_of_error(const std::exception& error) { return with_limits(error.what()); }

bool is_lack_of_threads(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system && system->code() == std::errc::resource_unavailable_try_again;
}

}  // namespace titan
