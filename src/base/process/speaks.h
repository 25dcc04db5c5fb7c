// Decides which rank prints an error that several ranks find. Failures after the ranks have met are handled in
// library/run_or_report.h.
#pragma once

#include "base/env.h"
#include "base/error.h"

namespace titan {

// Bad input whose message another rank prints. exit_code_of() gives that rank time to print before this rank ends.
class AlreadyReported : public ConfigError {
 public:
  explicit AlreadyReported(const Error& error) : ConfigError(error.what(), error.keys()) {}
};

// True if this rank prints errors in the command line, the environment and the configuration's files, which are the
// same on all ranks.
inline bool speaks_for_job(const LaunchEnv& launch) { return launch.rank == 0; }
// True if this rank prints errors in this machine's files and devices, which are the same on all its ranks.
inline bool speaks_for_machine(const LaunchEnv& launch) { return launch.local_rank == 0; }

// Returns what `check` returns. If `speaks` is false, bad input that it finds is thrown as AlreadyReported.
template <typename Check>
auto report_once(bool speaks, Check&& check) -> decltype(check()) {
  try {
    return check();
  } catch (const Error& error) {
    if (speaks || error.exit_code() != kExitBadInput) throw;
    throw AlreadyReported(error);
  }
}

}  // namespace titan
