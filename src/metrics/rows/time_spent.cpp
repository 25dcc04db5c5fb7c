#include "metrics/rows/time_spent.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/text.h"

namespace titan::metrics {
namespace {

constexpr TimeUse kUses[] = {
    {TimeCause::kProductive, "productive_seconds", "productive",
     "time in forward, backward and the optimizer, of steps that count; on a GPU also the wait for their end"},
    {TimeCause::kStart, "lost_start_seconds", "start",
     "from the start of the process to its first step, without what follows"},
    {TimeCause::kLoad, "lost_load_seconds", "load", "reading a checkpoint"},
    {TimeCause::kData, "lost_data_seconds", "data", "waiting for batches, and for the other ranks to have theirs"},
    {TimeCause::kCheckpoint, "lost_checkpoint_seconds", "checkpoint",
     "saving, or waiting for a save that runs in the background"},
    {TimeCause::kValidation, "lost_validation_seconds", "validation",
     "validation passes, scores of tasks and prompt samples"},
    {TimeCause::kLog, "lost_log_seconds", "log", "reducing numbers over ranks, and writing them down"},
    {TimeCause::kOther, "lost_other_seconds", "other", "anything else between steps"},
    {TimeCause::kRedone, "lost_redone_seconds", "redone",
     "work past the step that a restart went on from: it was made again. With --max-restarts also the time from a "
     "start's last row to its failure"},
    {TimeCause::kDown, "lost_down_seconds", "down",
     "from the last row of a start, or its failure, to the next start of the run that makes a step"},
};

TimeCause cause_of(Phase phase) {
  switch (phase) {
    case Phase::kStart:
      return TimeCause::kStart;
    case Phase::kLoad:
      return TimeCause::kLoad;
    case Phase::kData:
      return TimeCause::kData;
    case Phase::kStep:
    case Phase::kOptimizer:
    case Phase::kDevice:
      return TimeCause::kProductive;
    case Phase::kCheckpoint:
      return TimeCause::kCheckpoint;
    case Phase::kValidation:
      return TimeCause::kValidation;
    case Phase::kLog:
      return TimeCause::kLog;
    case Phase::kIdle:
      break;
  }
  return TimeCause::kOther;
}

}  // namespace

std::span<const TimeUse> time_uses() { return kUses; }

TimeSpent& TimeSpent::operator+=(const TimeSpent& other) {
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] += other.seconds[i];
  return *this;
}

double TimeSpent::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double TimeSpent::goodput_percent() const {
  const double all = total();
  return all > 0 ? 100.0 * (*this)[TimeCause::kProductive] / all : 0.0;
}

TimeSpent time_spent_in(const std::array<double, kNumPhases>& phases, double process_age) {
  TimeSpent spent;
  for (std::size_t i = 0; i < kNumPhases; ++i) spent[cause_of(static_cast<Phase>(i))] += phases[i];
  spent[TimeCause::kStart] += std::max(0.0, process_age - spent.total());
  return spent;
}

TimeSpent earlier_time_spent(const EarlierRow& kept, const EarlierRow& last, std::int64_t finished_steps,
                             double start_unix_time, std::optional<double> failure_unix_time) {
  TimeSpent spent = kept.spent;
  if (last.step > kept.step) {
    const double seconds = std::max(0.0, last.unix_time - kept.unix_time);
    const auto steps = static_cast<double>(last.step - kept.step);
    const double redone = seconds * static_cast<double>(last.step - finished_steps) / steps;
    spent[TimeCause::kRedone] += redone;
    spent[TimeCause::kProductive] += seconds - redone;
  }
  const double down_since =
      std::clamp(failure_unix_time.value_or(last.unix_time), last.unix_time, std::max(last.unix_time, start_unix_time));
  spent[TimeCause::kRedone] += down_since - last.unix_time;
  spent[TimeCause::kDown] += std::max(0.0, start_unix_time - down_since);
  return spent;
}

std::string format_goodput(const TimeSpent& spent) {
  const double all = std::max(spent.total(), 1e-9);
  std::vector<TimeUse> losses(std::begin(kUses) + 1, std::end(kUses));
  std::ranges::stable_sort(losses, [&](const TimeUse& a, const TimeUse& b) { return spent[a.cause] > spent[b.cause]; });
  std::vector<std::string> texts;
  for (const TimeUse& use : losses) {
    const double percent = 100.0 * spent[use.cause] / all;
    if (percent < 0.05) break;
    texts.push_back(fmt::format("{} {} ({:.1f} %)", use.word, format_duration(spent[use.cause]), percent));
  }
  return fmt::format("goodput {:.1f} % of {}{}{}", spent.goodput_percent(), format_duration(spent.total()),
                     texts.empty() ? "" : "; lost: ", join(texts, ", "));
}

}  // namespace titan::metrics
