// Decides what follows the end of ranks that --max-restarts looks after. Reads no clock, no file and no process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "apps/launch/launch_local.h"

namespace titan {

struct RestartLimits {
  std::int64_t max_restarts = 0;
  std::int64_t min_ranks = 0;  // 0: the number of ranks stays
};

// One start of the ranks and its end.
struct StartRecord {
  std::int64_t ranks = 1;
  RanksEnd end;
  std::int64_t saved_before = 0;                         // newest saved step when it began; 0 if there was none
  std::int64_t saved_after = 0;                          // the same when it ended
  std::optional<std::int64_t> last_step = std::nullopt;  // which it wrote a row of
};

// Starts with the same number of ranks that may end in a row without a newer saved step than before.
inline constexpr std::int64_t kMostStartsInVain = 3;

struct Decision {
  enum class Kind { kEnd, kRestart, kGiveUp };
  Kind kind = Kind::kEnd;
  std::chrono::seconds wait{0};  // before the restart
  std::string reason = {};       // to give up; empty otherwise
};

// True if another start may help: the ranks did not end in order, nor by a signal that the launcher got, nor because of
// their input or the numbers of the run.
bool may_help_to_restart(const RanksEnd& end);

// Decides what follows the last start of `history`, which has at least one.
Decision decide(std::span<const StartRecord> history, const RestartLimits& limits);

// Returns the wait after `in_vain` starts in a row that saved no newer step: 0, then 1, 2, 4, ... up to 60 s.
std::chrono::seconds wait_after(std::int64_t in_vain);

// Returns why the next start must have fewer ranks than the last one: the same rank ended by itself in the last two
// starts. Empty if nothing speaks against the number. `uses_gpus`: errors of a device end a rank with exit code 1.
std::string why_fewer_ranks(std::span<const StartRecord> history, bool uses_gpus);

// Returns the largest number of [least, below) for which `why_not` returns ""; nullopt if there is none.
std::optional<std::int64_t> largest_number(std::int64_t least, std::int64_t below,
                                           const std::function<std::string(std::int64_t)>& why_not);

// Returns "rank 1 was ended by SIGKILL after step 37".
std::string words_for_end(const StartRecord& start);

}  // namespace titan
