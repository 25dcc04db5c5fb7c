// The processes of a job's ranks, as the ranks tell each other at the start. Of one that runs on this machine the
// system says whether it is alive: no time without a word stands for a death.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace titan {

// The name of this machine in its network; empty where it has none.
std::string host_name();

struct RankProcess {
  std::string machine;  // differs between machines, boots, and containers that do not see each other's processes
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since the boot: a later process of the same number is another one
};

enum class Life {
  kUnknown,  // on another machine
  kRuns,
  kStopped,  // by SIGSTOP, a terminal, a debugger
  kEnded
};

// A process of this machine; of one that is gone already the life stays unknown.
RankProcess process_of(pid_t pid);
RankProcess own_process();

// Never throws: what /proc does not say is kUnknown.
Life life_of(const RankProcess& process) noexcept;

// One line without spaces in its parts, and back; an unreadable line gives a process whose life is unknown.
std::string to_text(const RankProcess& process);
RankProcess rank_process_from_text(const std::string& text);

}  // namespace titan
