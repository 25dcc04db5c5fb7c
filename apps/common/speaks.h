// Which rank prints an error that several ranks find out alike. A rank that fails after the ranks have met is another
// matter: apps/train/run_or_report.h.
#pragma once

#include "base/env.h"
#include "base/error.h"

namespace titan {

// Says that another rank prints the message of this bad input. exit_code_of() leaves that one the time for it before
// this rank ends.
class SaidByAnother : public ConfigError {
 public:
  explicit SaidByAnother(const Error& error) : ConfigError(error.what(), error.keys()) {}
};

// What follows from the command line, the environment and the configuration's files is the same on all ranks.
inline bool speaks_for_job(const LaunchEnv& launch) { return launch.rank == 0; }
// What follows from this machine's files and devices is the same on the ranks of this machine.
inline bool speaks_for_machine(const LaunchEnv& launch) { return launch.local_rank == 0; }

// What `check` gives. Where `speaks` is false, bad input that it finds is thrown as SaidByAnother.
template <typename Check>
auto say_once(bool speaks, Check&& check) -> decltype(check()) {
  try {
    return check();
  } catch (const Error& error) {
    if (speaks || error.exit_code() != kExitBadInput) throw;
    throw SaidByAnother(error);
  }
}

}  // namespace titan
