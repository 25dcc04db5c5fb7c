// Accounts for the time of a run: goodput, the share spent on steps that count, and the causes of the lost time.
//
// Time is wall-clock time of the training thread in seconds, and adds up over all starts of a run: each row of
// metrics.jsonl has the sums so far, from which the next start continues.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/process/phase.h"

namespace titan::metrics {

enum class TimeCause : int {
  kProductive,
  kStart,
  kLoad,
  kData,
  kCheckpoint,
  kValidation,
  kLog,
  kOther,
  kRedone,
  kDown,
};

// One category of time.
struct TimeUse {
  TimeCause cause;
  std::string_view name;     // its key in metrics.jsonl
  std::string_view word;     // name in a line for people
  std::string_view meaning;  // for docs/metrics.md
};

std::span<const TimeUse> time_uses();

struct TimeSpent {
  std::array<double, 10> seconds{};  // by cause

  double& operator[](TimeCause cause) { return seconds[static_cast<std::size_t>(cause)]; }
  double operator[](TimeCause cause) const { return seconds[static_cast<std::size_t>(cause)]; }
  TimeSpent& operator+=(const TimeSpent& other);
  double total() const;
  // Returns the productive percentage of the total; 0 if the total is 0.
  double goodput_percent() const;
};

// Returns the time spent in this process. `phases`: of the training thread. `process_age`: seconds since the kernel
// made the process; the part without a phase counts as its start.
TimeSpent time_spent_in(const std::array<double, kNumPhases>& phases, double process_age);

// A row of an earlier start: its last one, or the last one that counts.
struct EarlierRow {
  std::int64_t step = 0;
  double unix_time = 0;  // seconds
  TimeSpent spent = {};
};

// Returns the time that a run has spent before the process that began at `start_unix_time` and resumes after
// `finished_steps`: the sums of `kept`, the last row up to that step; the time between `kept` and `last`; and the time
// after `last`, when the run was down. The time between the two rows is split by steps: the share of steps past
// `finished_steps` counts as redone (that work is lost), the rest as productive. `failure_unix_time`: when the start
// that wrote `last` failed, if that is known; from `last` until then time counts as redone, too.
TimeSpent earlier_time_spent(const EarlierRow& kept, const EarlierRow& last, std::int64_t finished_steps,
                             double start_unix_time, std::optional<double> failure_unix_time = std::nullopt);

// Returns "goodput 91.2 % of 1:02:03; lost: start 0:05 (0.1 %), data 0:20 (0.5 %)": the largest losses first, without
// those that round to 0.0 %.
std::string format_goodput(const TimeSpent& spent);

}  // namespace titan::metrics
