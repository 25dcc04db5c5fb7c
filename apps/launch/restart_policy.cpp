#include "apps/launch/restart_policy.h"

#include <algorithm>

#include "base/error.h"
#include "base/process/signal.h"
#include "base/text.h"

namespace titan {
namespace {

constexpr std::chrono::seconds kLongestWait(60);

// Returns how many starts in a row, up to the last one, saved no newer step. Another number of ranks is another try.
std::int64_t starts_in_vain(std::span<const StartRecord> history) {
  std::int64_t count = 0;
  for (auto start = history.rbegin(); start != history.rend(); ++start, ++count)
    if (start->saved_after > start->saved_before || start->ranks != history.back().ranks) break;
  return count;
}

// True if the rank itself was the reason: it was killed, or something in it ended it.
bool ended_by_itself(const StartRecord& start, bool uses_gpus) {
  const RanksEnd& end = start.end;
  if (!end.rank || !end.is_alone) return false;
  const bool is_ours = end.exit_code == kExitPeerFailed || end.exit_code == kExitFailed;
  return end.signal != 0 || !is_ours || (uses_gpus && end.exit_code == kExitFailed);
}

}  // namespace

bool may_help_to_restart(const RanksEnd& end) {
  if (end.stop_signal) return false;
  return end.exit_code != kExitDone && end.exit_code != kExitSavedRequeue && end.exit_code != kExitBadInput &&
         end.exit_code != kExitDiverged;
}

std::chrono::seconds wait_after(std::int64_t in_vain) {
  if (in_vain <= 0) return std::chrono::seconds(0);
  constexpr std::int64_t kDoublings = 6;  // 2^6 > 60
  return std::min(kLongestWait, std::chrono::seconds(1LL << std::min(in_vain - 1, kDoublings)));
}

Decision decide(std::span<const StartRecord> history, const RestartLimits& limits) {
  const StartRecord& last = history.back();
  if (limits.max_restarts == 0 || !may_help_to_restart(last.end)) return {};
  const std::int64_t in_vain = starts_in_vain(history);
  if (in_vain >= kMostStartsInVain)
    return {.kind = Decision::Kind::kGiveUp,
            .reason = std::to_string(in_vain) + " starts in a row saved no step " +
                      (last.saved_after > 0 ? "after step " + std::to_string(last.saved_after) : "at all")};
  if (std::ssize(history) > limits.max_restarts)
    return {.kind = Decision::Kind::kGiveUp,
            .reason = "--max-restarts " + std::to_string(limits.max_restarts) + " allows no more"};
  return {.kind = Decision::Kind::kRestart, .wait = wait_after(in_vain)};
}

std::string why_fewer_ranks(std::span<const StartRecord> history, bool uses_gpus) {
  if (history.size() < 2) return {};
  const StartRecord &last = history.back(), &before = history[history.size() - 2];
  if (!ended_by_itself(last, uses_gpus) || !ended_by_itself(before, uses_gpus)) return {};
  if (last.ranks != before.ranks || last.end.rank != before.end.rank) return {};
  return "rank " + std::to_string(*last.end.rank) + " ended by itself in 2 starts in a row";
}

std::optional<std::int64_t> largest_number(std::int64_t least, std::int64_t below,
                                           const std::function<std::string(std::int64_t)>& why_not) {
  for (std::int64_t number = below - 1; number >= least; --number)
    if (why_not(number).empty()) return number;
  return std::nullopt;
}

std::string words_for_end(const StartRecord& start) {
  const RanksEnd& end = start.end;
  std::string words = "the ranks ended with exit code " + std::to_string(end.exit_code);
  if (!end.hung.empty() && end.exit_code == kExitPeerFailed) {
    std::vector<std::string> ranks;
    for (const std::int64_t rank : end.hung) ranks.push_back(std::to_string(rank));
    words = (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ") + " hung";
  } else if (end.rank) {
    words = "rank " + std::to_string(*end.rank) +
            (end.signal != 0 ? " was ended by " + signal_name(end.signal)
                             : " ended with exit code " + std::to_string(end.exit_code));
    if (end.exit_code == kExitPeerFailed) words += " (another rank failed or hung)";
  }
  return words + (start.last_step ? " after step " + std::to_string(*start.last_step) : " before its first row");
}

}  // namespace titan
