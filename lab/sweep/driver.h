// Runs the trials of a sweep.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/sweep/plan/plan.h"
#include "lab/sweep/plan/slots.h"
#include "lab/sweep/plan/trial_schedule.h"
#include "lab/sweep/process.h"
#include "lab/sweep/report/display.h"
#include "lab/sweep/results/store.h"
#include "lab/sweep/results/trial_metrics.h"

namespace titan::sweep {

// `spec` and `plan` belong together; `record` is the folder's record, including the results of earlier
// drivers. The caller holds the folder's lock and has installed the signal handlers (base/process/signal.h).
class Driver {
 public:
  Driver(const SweepSpec& spec, const Plan& plan, Record record, std::vector<Slot> slots);

  // Retries trials that failed in an earlier start.
  void retry_failed() { schedule_.retry_failed(); }

  // Runs until no trial is left, or until a signal requests a stop: then the running trials are
  // asked to save, and resume at the next start. Returns kExitDone, kExitFailed if a trial failed,
  // or kExitSavedRequeue. Updates the record on disk and the report after every change.
  int run();

  const Record& record() const { return record_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Running {
    std::size_t trial;
    std::size_t slot;
    pid_t pid;
    Clock::time_point started;
    std::int64_t first_step;  // last step that earlier starts have logged
    bool was_trained;         // earlier starts have reached the target
    TrialMetrics metrics;
    bool timed_out = false;
    std::optional<Clock::time_point> asked;  // when it was asked to save and stop
  };

  void recover();
  bool start(std::size_t trial, std::size_t slot);
  Launch launch_of(std::size_t trial, const Slot& slot) const;
  std::int64_t target_steps(std::size_t trial) const;
  void write_config(std::size_t trial) const;
  void fill_slots();
  void reap();
  void settle(Running& running, const Exit& exit);
  std::optional<double> objective_of(std::size_t trial, const TrialMetrics& metrics) const;
  void finish(std::size_t trial, const TrialMetrics& metrics);
  void fail(std::size_t trial, const std::string& error, bool may_retry);
  void watch_clock();
  void ask_to_stop(Running& running);
  void save(bool report);
  void show();
  std::filesystem::path folder_of(std::size_t trial) const { return spec_.folder / record_.trials[trial].name; }

  const SweepSpec& spec_;
  const Plan& plan_;
  Record record_;
  std::vector<Slot> slots_;
  Schedule schedule_;
  std::vector<Running> running_;
  Display display_;
  bool stopping_ = false;
  Clock::time_point reported_{};
};

// Returns the local time as "2026-01-31 12:00:00".
std::string time_text();

}  // namespace titan::sweep
