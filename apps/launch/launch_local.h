// --nproc N: this program starts N ranks of itself on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan {

// How a start of the ranks ended.
struct RanksEnd {
  int exit_code = 0;                                // of the rank that failed first by itself, else the highest one
  std::optional<std::int64_t> rank = std::nullopt;  // the one that failed first by itself
  int signal = 0;                                   // that ended this rank; 0: it exited
  bool is_alone = false;                            // every other rank ended because of this one
  std::vector<std::int64_t> hung = {};              // ranks that did not end after another one had failed
  std::optional<int> stop_signal = std::nullopt;    // which the launcher got meanwhile
  double unix_time = 0;                             // of the first failure, else of the end; seconds since 1970
};

// Throws ConfigError if this machine's cores and free memory are not enough for `nproc` ranks.
void check_room_for(std::int64_t nproc);

// Starts `nproc` ranks with `args` (see arguments_of_ranks()), forwards signals to them, and waits. When one fails,
// the others end too. Call it before any thread is started. Throws ConfigError if another launcher started this
// process.
RanksEnd launch_local(const std::vector<std::string>& args, std::int64_t nproc);

// Returns `args` without the launcher's own flags: --nproc, --max-restarts and --min-nproc with their values, and
// --oversubscribe.
std::vector<std::string> arguments_of_ranks(const std::vector<std::string>& args);

}  // namespace titan
