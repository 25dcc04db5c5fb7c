// Identifies the processes of a job's ranks; ranks exchange this at the start. The system tells
// whether a process on this machine is alive, so that silence alone never counts as death.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace titan {

// Returns this machine's name in its network; empty if it has none.
std::string host_name();

struct RankProcess {
  std::string machine;  // differs between machines, boots, and containers that do not see each other's processes
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot: tells a later process with the same pid apart
};

enum class Life {
  kUnknown,  // on another machine, or the system does not say
  kRuns,
  kStopped,  // by SIGSTOP, a terminal, a debugger
  kEnded
};

// Describes a process of this machine. If it has already ended, its life stays unknown.
RankProcess process_of(pid_t pid);
RankProcess own_process();

// Never throws: any exception gives kUnknown.
Life life_of(const RankProcess& process) noexcept;

// Writes one line, whose parts contain no spaces; rank_process_from_text() reads it. An unreadable
// line gives a process whose life is unknown.
std::string to_text(const RankProcess& process);
RankProcess rank_process_from_text(const std::string& text);

}  // namespace titan
