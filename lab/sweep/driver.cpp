#include "lab/sweep/driver.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <ctime>
#include <fstream>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process/signal.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "config/keys/print.h"
#include "lab/sweep/report/sweep_report.h"
#include "lab/sweep/results/results.h"

namespace titan::sweep {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);
// Time that a trial gets to save after a timeout, before it is killed.
constexpr auto kGrace = std::chrono::seconds(30);
// Time that processes of an earlier start may take to disappear; they were killed with their driver.
constexpr auto kLockPatience = std::chrono::seconds(30);
constexpr auto kReportEvery = std::chrono::seconds(20);
constexpr const char* kLog = "log.txt";

Rules rules_of(const SweepSpec& spec, const Plan& plan) {
  return {plan.rungs, spec.asha ? spec.asha->reduction_factor : 0, spec.objective.maximize, spec.retries};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// True if the save after the trial's last step is complete, in either format. It happens before the
// process ends, so a process killed after it has nothing left to do.
bool is_trained(const config::JobConfig& config, const std::filesystem::path& folder, std::int64_t steps) {
  return config.checkpoint.enable &&
         layout::is_complete_save(folder / config.checkpoint.folder / layout::step_name(steps));
}

}  // namespace

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

Driver::Driver(const SweepSpec& spec, const Plan& plan, Record record, std::vector<Slot> slots)
    : spec_(spec),
      plan_(plan),
      record_(std::move(record)),
      slots_(std::move(slots)),
      schedule_(record_.trials, rules_of(spec, plan)) {}

int Driver::run() {
  recover();
  save(false);
  while (true) {
    if (stop_requested() && !stopping_) {
      stopping_ = true;
      display_.event("sweep: " + signal_name(*stop_requested()) + ": asking " +
                     counted(std::ssize(running_), "running trial") + " to save; a second signal ends them at once");
    }
    if (stopping_)
      for (auto& running : running_)
        if (!running.asked) ask_to_stop(running);
    reap();
    watch_clock();
    if (!stopping_) fill_slots();
    if (running_.empty()) break;
    show();
    std::this_thread::sleep_for(kPoll);
  }
  display_.close();
  save(true);
  if (stop_requested()) return kExitSavedRequeue;
  return schedule_.any(State::kFailed) ? kExitFailed : kExitDone;
}

// Trials that the record calls running died with an earlier driver, so finish or resume them.
void Driver::recover() {
  for (std::size_t i = 0; i < record_.trials.size(); ++i) {
    if (record_.trials[i].state != State::kRunning) continue;
    TrialMetrics metrics(folder_of(i));
    metrics.refresh();
    schedule_.trial(i).steps = metrics.last_step();
    if (is_trained(plan_.trials[i].config, folder_of(i), target_steps(i)) && objective_of(i, metrics)) {
      finish(i, metrics);
    } else {
      schedule_.interrupt(i);
      display_.event("sweep: " + trial_text(record_, i) + " was interrupted at step " +
                     std::to_string(metrics.last_step()) + " and will go on");
    }
  }
}

std::int64_t Driver::target_steps(std::size_t trial) const {
  if (plan_.rungs.empty()) return plan_.trials[trial].config.training.steps;
  return plan_.rungs[std::min(schedule_.target_rung(trial), plan_.rungs.size() - 1)];
}

void Driver::fill_slots() {
  for (std::size_t slot = 0; slot < slots_.size() && !stop_requested() && !stopping_; ++slot) {
    if (std::ranges::count(running_, slot, &Running::slot) > 0) continue;
    const auto trial = schedule_.next();
    if (!trial) return;
    start(*trial, slot);
  }
}

void Driver::write_config(std::size_t trial) const {
  auto config = plan_.trials[trial].config;
  config.training.steps = target_steps(trial);
  std::filesystem::create_directories(folder_of(trial));
  write_file_atomically(folder_of(trial) / layout::kConfigFile, config::to_toml(config));
}

Launch Driver::launch_of(std::size_t trial, const Slot& slot) const {
  const auto folder = folder_of(trial);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string config = (folder / layout::kConfigFile).string();
  Launch launch;
  launch.cores = slot.cores;
  launch.log = folder / kLog;
  launch.lock = folder / ".lock";
  if (!spec_.launcher.empty()) {
    const LaunchValues values{spec_.nproc, spec_.cores.value_or(spec_.nproc), spec_.gpus, record_.trials[trial].name,
                              folder.string()};
    launch.words = fill_launcher(spec_.launcher, values, {program, "--config", config});
    return launch;
  }
  launch.words = {program, "--nproc", std::to_string(spec_.nproc), "--config", config};
  if (!get_env("OMP_NUM_THREADS")) {
    const auto threads = std::max<std::int64_t>(1, static_cast<std::int64_t>(slot.cores.size()) / spec_.nproc);
    launch.environment["OMP_NUM_THREADS"] = std::to_string(threads);
  }
  if (!slot.gpus.empty()) launch.environment["CUDA_VISIBLE_DEVICES"] = join(slot.gpus, ",");
  return launch;
}

bool Driver::start(std::size_t trial, std::size_t slot) {
  write_config(trial);
  const Launch launch = launch_of(trial, slots_[slot]);
  std::ofstream(launch.log, std::ios::app) << "=== " << time_text() << " start " << record_.trials[trial].starts + 1
                                           << ": " << join(launch.words, " ") << std::endl;
  // Save before there is a process: a crash in between costs a start, but no trial ever runs unnoticed.
  schedule_.start(trial);
  save(false);
  TrialMetrics metrics(folder_of(trial));
  metrics.refresh();
  const auto began = Clock::now();
  auto pid = start_process(launch);
  while (!pid && Clock::now() - began < kLockPatience && !stop_requested()) {
    std::this_thread::sleep_for(kPoll);
    pid = start_process(launch);
  }
  if (!pid && stop_requested()) {
    schedule_.interrupt(trial);
    return false;
  }
  if (!pid) {
    fail(trial, "processes of an earlier start still run in " + folder_of(trial).string() + "; end them", false);
    return false;
  }
  const std::int64_t done = metrics.last_step();
  const bool was_trained = is_trained(plan_.trials[trial].config, folder_of(trial), target_steps(trial));
  running_.push_back({trial, slot, *pid, Clock::now(), done, was_trained, std::move(metrics), false, std::nullopt});
  const bool again = record_.trials[trial].starts > 1;
  display_.event("sweep: " + trial_text(record_, trial) + (again ? " goes on to step " : " starts, to step ") +
                 std::to_string(target_steps(trial)));
  return true;
}

void Driver::reap() {
  for (std::size_t i = 0; i < running_.size();) {
    const auto exit = poll_process(running_[i].pid);
    if (!exit) {
      ++i;
      continue;
    }
    Running running = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    settle(running, *exit);
    save(true);
  }
}

// Updates a trial after its process has ended.
void Driver::settle(Running& running, const Exit& exit) {
  const std::size_t trial = running.trial;
  running.metrics.refresh();
  schedule_.trial(trial).seconds += seconds_since(running.started);
  schedule_.trial(trial).steps = running.metrics.last_step();
  const bool stopped_by_us = running.asked && !running.timed_out;
  if (exit.code == kExitDone && !running.was_trained && !objective_of(trial, running.metrics) &&
      is_trained(plan_.trials[trial].config, folder_of(trial), target_steps(trial))) {
    // A signal interrupted the validation or evaluation of its last step; another start catches up.
    schedule_.interrupt(trial);
  } else if (exit.code == kExitDone) {
    finish(trial, running.metrics);
  } else if (exit.code == kExitDiverged) {
    // A result, not a failure, but the worst one, whatever its earlier metrics were.
    schedule_.finish(trial, std::nan(""));
    display_.event("sweep: " + trial_text(record_, trial) + " diverged at step " +
                   std::to_string(running.metrics.last_step()));
  } else if (running.timed_out) {
    fail(trial, "ran longer than sweep.timeout_minutes", true);
  } else if (stopped_by_us) {
    schedule_.interrupt(trial);
    display_.event("sweep: " + trial_text(record_, trial) +
                   (exit.code == kExitSavedRequeue ? " saved at step " : " stopped at step ") +
                   std::to_string(running.metrics.last_step()));
  } else if (exit.code == kExitSavedRequeue && running.metrics.last_step() > running.first_step) {
    // A signal from elsewhere, e.g. from a scheduler at a time limit. The trial resumes as long as it makes progress.
    schedule_.interrupt(trial);
    display_.event("sweep: " + trial_text(record_, trial) + " was asked to stop and saved; it goes on");
  } else {
    const std::string how =
        exit.signal ? "ended by " + signal_name(exit.signal) : "exit code " + std::to_string(exit.code);
    const std::string line = last_error_line(folder_of(trial) / kLog);
    fail(trial, how + (line.empty() ? "" : ": " + line), exit.code != kExitBadInput);
  }
}

// Returns nullopt if there is no row, or if the newest validation or evaluation is older than the trial's target step.
std::optional<double> Driver::objective_of(std::size_t trial, const TrialMetrics& metrics) const {
  const Curve curve = metrics.curve(record_.objective.field);
  if (is_of_pass(record_.objective) && (curve.empty() || curve.steps.back() != target_steps(trial)))
    return std::nullopt;
  return reduce(curve, record_.objective);
}

void Driver::finish(std::size_t trial, const TrialMetrics& metrics) {
  const auto objective = objective_of(trial, metrics);
  if (!objective) {
    fail(trial,
         "ended well, but its metrics have no " + record_.objective.field +
             (is_of_pass(record_.objective) ? " of its last step, " + std::to_string(target_steps(trial)) : ""),
         false);
    return;
  }
  const std::int64_t row = metrics.curve(record_.objective.field).steps.back();
  schedule_.trial(trial).steps = target_steps(trial);
  schedule_.trial(trial).objective_step = row;
  schedule_.finish(trial, *objective);
  const bool paused = schedule_.trials()[trial].state == State::kPaused;
  display_.event("sweep: " + trial_text(record_, trial) + (paused ? " reached step " : " is done at step ") +
                 std::to_string(schedule_.trials()[trial].steps) + ": " + record_.objective.field + " " +
                 objective_text(*objective) +
                 (row == schedule_.trials()[trial].steps ? "" : " (of step " + std::to_string(row) + ")"));
}

void Driver::fail(std::size_t trial, const std::string& error, bool may_retry) {
  schedule_.fail(trial, error, may_retry);
  const bool again = schedule_.trials()[trial].state == State::kPending;
  display_.event("sweep: " + trial_text(record_, trial) + " failed" + (again ? " and is tried again" : "") + ": " +
                 error + " (" + (folder_of(trial) / kLog).string() + ")");
  if (!again && spec_.stop_on_failure && !stopping_) {
    stopping_ = true;
    display_.event("sweep: stops, as sweep.stop_on_failure asks");
  }
}

void Driver::ask_to_stop(Running& running) {
  running.asked = Clock::now();
  signal_process(running.pid, SIGTERM, false);
}

void Driver::watch_clock() {
  for (auto& running : running_) {
    const bool is_late = spec_.timeout_minutes > 0 && seconds_since(running.started) > spec_.timeout_minutes * 60;
    if (is_late && !running.asked) {
      running.timed_out = true;
      ask_to_stop(running);
    }
    // Kill the group: a launcher that ignores SIGTERM has ranks.
    if (running.timed_out && Clock::now() - *running.asked > kGrace) signal_process(running.pid, SIGKILL, true);
  }
}

void Driver::save(bool report) {
  record_.trials = schedule_.trials();
  save_record(spec_.folder, record_);
  // Limit how often: the report reads every trial's metrics.
  if (!report || (!running_.empty() && Clock::now() - reported_ < kReportEvery)) return;
  reported_ = Clock::now();
  write_report(spec_.folder, record_, time_text());
}

void Driver::show() {
  if (!display_.is_due()) return;
  record_.trials = schedule_.trials();
  std::vector<Progress> progress;
  for (auto& running : running_) {
    running.metrics.refresh();
    const auto curve = running.metrics.curve(record_.objective.field);
    progress.push_back({running.trial, running.metrics.last_step(), target_steps(running.trial),
                        curve.values.empty() ? std::nan("") : curve.values.back()});
  }
  display_.refresh(record_, progress);
}

}  // namespace titan::sweep
