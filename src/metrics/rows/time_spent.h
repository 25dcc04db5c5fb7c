// Where a run's time went: goodput, the share of it in which steps were made that count, and what the rest was lost to.
//
// The time is that of the thread that trains, in seconds of the clock on the wall, and adds up over all starts of a run:
// each row of metrics.jsonl has the sums so far, from which the next start goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// One of the columns that time is counted in.
struct TimeUse {
  TimeCause cause;
  std::string_view name;     // its key in metrics.jsonl
  std::string_view word;     // in a line for people
  std::string_view meaning;  // for docs/metrics.md
};

std::span<const TimeUse> time_uses();

struct TimeSpent {
  std::array<double, 10> seconds{};  // by cause

  double& operator[](TimeCause cause) { return seconds[static_cast<std::size_t>(cause)]; }
  double operator[](TimeCause cause) const { return seconds[static_cast<std::size_t>(cause)]; }
  TimeSpent& operator+=(const TimeSpent& other);
  double total() const;
  // 100 times the productive part of the total; 0 of nothing.
  double goodput_percent() const;
};

// Of this process: `phases` of the thread that trains, `process_age` the seconds since the kernel made the process, whose
// part that no phase has is its start.
TimeSpent time_spent_in(const std::array<double, kNumPhases>& phases, double process_age);

// The last row of an earlier start, and the last of its rows that count.
struct EarlierRow {
  std::int64_t step = 0;
  double unix_time = 0;  // seconds
  TimeSpent spent = {};
};

// What a run has spent before the process that began at `start_unix_time` goes on from `finished_steps`: the sums of
// `kept`, the last row up to that step; the work past it, known up to `last`, which is lost, as it is made again; and the
// time from `last` on, in which the run was down. Of the time between the two rows that part counts as redone that their
// steps past `finished_steps` are of all steps between them, the rest as productive.
TimeSpent earlier_time_spent(const EarlierRow& kept, const EarlierRow& last, std::int64_t finished_steps,
                             double start_unix_time);

// "goodput 91.2 % of 1:02:03; lost: start 0:05 (0.1 %), data 0:20 (0.5 %)": the largest losses first, those that round
// to 0.0 % left out.
std::string format_goodput(const TimeSpent& spent);

}  // namespace titan::metrics
