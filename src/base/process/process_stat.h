// Looks at a process of this machine through /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace titan {

struct ProcessStat {
  char state = 0;                // the letter of proc(5), X if there is no such process; 0: the system does not say
  std::uint64_t start_time = 0;  // clock ticks since boot: tells a later process with the same pid apart; 0: unknown

  bool is_known() const { return state != 0; }
  bool has_ended() const { return state == 'Z' || state == 'X'; }
  bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Reads /proc/PID/stat. Only the answer that there is no such process counts as its end: a process that cannot be
// looked at, for example because this one has too many open files, is unknown.
ProcessStat read_process_stat(pid_t pid);

}  // namespace titan
