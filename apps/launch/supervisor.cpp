#include "apps/launch/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>

#include "apps/launch/run_progress.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process/memory.h"
#include "base/process/signal.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "config/load.h"
#include "config/paths.h"

namespace titan {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) { std::fprintf(stderr, "titan-train: %s\n", text.c_str()); }

// Waits; a signal that asks to stop ends the wait at once.
void wait_unless_stopped(std::chrono::seconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (!stop_requested() && std::chrono::steady_clock::now() < end) ::poll(nullptr, 0, /*timeout=*/10);
}

class Supervisor {
 public:
  explicit Supervisor(const Supervised& run) : run_(run), ranks_(run.ranks) {}

  int run() {
    for (;;) {
      start_once();
      const Decision decision = decide(history_, run_.limits);
      if (decision.kind == Decision::Kind::kEnd) return last().end.exit_code;
      if (decision.kind == Decision::Kind::kGiveUp) return give_up(decision.reason);
      if (const std::string none = choose_ranks(); !none.empty()) return give_up(none);
      announce(decision.wait);
      wait_unless_stopped(decision.wait);
      if (const auto signal = stop_requested()) {
        say(signal_name(*signal) + " asked to stop: the ranks are not started again");
        return 128 + *signal;
      }
      record(decision.wait);
    }
  }

 private:
  const StartRecord& last() const { return history_.back(); }
  std::int64_t reached() const { return last().last_step.value_or(last().saved_after); }

  // Names the last start: "start 2 of at most 4".
  std::string name_of_start(std::int64_t number) const {
    return "start " + std::to_string(number) + " of at most " + std::to_string(run_.limits.max_restarts + 1);
  }

  void start_once() {
    StartRecord start{.ranks = ranks_, .end = {}};
    start.saved_before = history_.empty() ? newest_saved_step(run_.checkpoints) : last().saved_after;
    const double begin = unix_now();
    if (history_.empty()) first_begin_ = begin;
    const bool may_overwrite = (has_rows_ || run_.overwrites) && newest_saved_step(run_.checkpoints) == 0;
    start.end = run_.run(ranks_, std::ssize(history_) + 1, may_overwrite);
    start.last_step = last_step_since(run_.folder, begin);
    has_rows_ = has_rows_ || start.last_step.has_value();
    start.saved_after =
        std::max(newest_saved_step(run_.checkpoints), resumed_step_since(run_.folder, begin).value_or(0));
    history_.push_back(std::move(start));
  }

  // Sets the number of ranks of the next start. Returns why there is none; empty if there is.
  std::string choose_ranks() {
    if (run_.limits.min_ranks == 0) return {};
    std::string why = why_fewer_ranks(history_, run_.uses_gpus);
    if (why.empty()) why = run_.why_not(ranks_);
    if (why.empty()) return {};
    std::string last_reason;
    const auto number = largest_number(run_.limits.min_ranks, ranks_, [&](std::int64_t candidate) {
      last_reason = run_.why_not(candidate);
      return last_reason;
    });
    if (!number)
      return why + ", and fewer ranks are not possible: " +
             (last_reason.empty() ? "--min-nproc is " + std::to_string(run_.limits.min_ranks) : last_reason);
    say("the next start has " + counted(*number, "rank") + " in place of " + std::to_string(ranks_) + ": " + why);
    ranks_ = *number;
    return {};
  }

  void announce(std::chrono::seconds wait) const {
    const std::int64_t saved = last().saved_after;
    const std::string with = ranks_ > 0 ? " with " + counted(ranks_, "rank") : "";
    std::string plan = "beginning anew" + with;
    if (saved > 0) plan = "resuming from step " + std::to_string(saved) + with;
    if (run_.has_memory_copies) {
      plan += ", or from a newer copy in memory";
    } else {
      plan += " (" + counted(std::max<std::int64_t>(0, reached() - saved), "step") + " lost)";
    }
    if (wait.count() > 0) plan += ", in " + std::to_string(wait.count()) + " s";
    say(name_of_start(std::ssize(history_) + 1) + ": " + words_for_end(last()) + "; " + plan);
  }

  RestartEvent event_of_end(std::int64_t start) const {
    return {.start = start,
            .exit_code = last().end.exit_code,
            .rank = last().end.rank,
            .reason = words_for_end(last()),
            .reached = reached()};
  }

  void record(std::chrono::seconds wait) const {
    RestartEvent event = event_of_end(std::ssize(history_) + 1);
    event.resumed_step = last().saved_after;
    event.ranks = ranks_;
    event.down_seconds = unix_now() - last().end.unix_time;
    event.wait_seconds = static_cast<double>(wait.count());
    event.first_start = first_begin_;
    append(event);
  }

  void append(const RestartEvent& event) const {
    if (const std::string why = append_event(run_.folder, event); !why.empty())
      say("the restart is not recorded: " + why);
  }

  int give_up(const std::string& reason) const {
    RestartEvent event = event_of_end(std::ssize(history_));
    event.event = "gave_up";
    event.reason += "; " + reason;
    append(event);
    say("gives up after " + name_of_start(std::ssize(history_)) + ": " + words_for_end(last()) + "; " + reason);
    return last().end.exit_code;
  }

  const Supervised& run_;
  std::int64_t ranks_;
  std::vector<StartRecord> history_;
  double first_begin_ = 0;
  bool has_rows_ = false;  // an earlier start wrote rows
};

// Counts the files /dev/nvidia0, /dev/nvidia1, ...
std::int64_t number_of_gpus() {
  std::int64_t number = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/dev", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    constexpr std::string_view kBegin = "nvidia";
    const bool is_gpu =
        name.starts_with(kBegin) && name.size() > kBegin.size() &&
        std::all_of(name.begin() + kBegin.size(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    number += is_gpu ? 1 : 0;
  }
  return number;
}

// Returns why a run of this configuration cannot have `ranks` ranks; empty if it can.
std::string why_not_valid(const config::CommandLine& command_line, std::int64_t ranks) {
  const auto& shown = command_line.log_ranks;
  if (shown && shown->highest() >= ranks) return "--log-rank names rank " + std::to_string(shown->highest());
  try {
    config::load_job_config(command_line, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::vector<std::string> arguments_of_restart(std::vector<std::string> args, bool may_overwrite) {
  std::erase(args, "--overwrite");
  if (may_overwrite) args.emplace_back("--overwrite");
  return args;
}

void check_saves(std::int64_t max_restarts, const config::JobConfig& config) {
  const auto fail = [&](const std::string& why, std::vector<std::string> keys) {
    throw ConfigError(
        "--max-restarts " + std::to_string(max_restarts) + " starts a run again from its newest checkpoint, " + why,
        std::move(keys));
  };
  const config::Checkpoint& checkpoint = config.checkpoint;
  if (!checkpoint.enable)
    fail("but checkpoint.enable is false: set it to true, or leave --max-restarts out", {"checkpoint.enable"});
  if (checkpoint.load_only)
    fail("but checkpoint.load_only is true, so that none is saved: set it to false, or leave --max-restarts out",
         {"checkpoint.load_only"});
  if (checkpoint.load_step >= 0)
    fail("but checkpoint.load_step = " + std::to_string(checkpoint.load_step) +
             " names another one: set it to -1, or leave --max-restarts out",
         {"checkpoint.load_step"});
  if (!checkpoint.exclude_from_loading.empty())
    fail(
        "but checkpoint.exclude_from_loading leaves parts of it out: leave that out once the run has saved a step, or "
        "leave --max-restarts out",
        {"checkpoint.exclude_from_loading"});
}

void check_restarts(const config::CommandLine& command_line, const config::JobConfig& config) {
  if (command_line.max_restarts.value_or(0) == 0) return;
  check_saves(*command_line.max_restarts, config);
  const std::int64_t ranks = *command_line.nproc, least = command_line.min_nproc.value_or(ranks);
  if (least > ranks)
    throw ConfigError("--min-nproc " + std::to_string(least) + ": expected at most --nproc, " + std::to_string(ranks));
  if (least == ranks) return;
  const std::string fewer = "--min-nproc " + std::to_string(least) + " lets a run go on with fewer ranks, ";
  if (config.training.global_batch_size < 0)
    throw ConfigError(fewer + "but its batches would be smaller then: set training.global_batch_size",
                      {"training.global_batch_size"});
  if (const config::Training& t = config.training;
      config::data_order(t.data_order, t.dataset, !t.dataset_mix.empty()) != "elastic")
    throw ConfigError(
        fewer + "but the order of its data depends on their number: set training.data_order = \"elastic\"",
        {"training.data_order", "training.dataset"});
  std::string why;
  const auto number = largest_number(least, ranks, [&](std::int64_t candidate) {
    why = why_not_valid(command_line, candidate);
    return why;
  });
  if (!number)
    throw ConfigError(fewer + "but its configuration fits no number from " + std::to_string(least) + " to " +
                      std::to_string(ranks - 1) + "; with " + counted(least, "rank") + ": " + why);
}

int supervise(const Supervised& run) { return Supervisor(run).run(); }

int supervise_local(const std::vector<std::string>& args, const config::CommandLine& command_line,
                    const config::JobConfig& config) {
  const std::int64_t ranks = *command_line.nproc;
  const std::int64_t gpus = config.training.device == "cpu" ? 0 : number_of_gpus();
  Supervised run{.ranks = ranks,
                 .limits = {.max_restarts = command_line.max_restarts.value_or(0),
                            .min_ranks = command_line.min_nproc.value_or(0)},
                 .folder = config.job.dump_folder,
                 .checkpoints = config::checkpoint_folder(config),
                 .has_memory_copies = config.checkpoint.memory_interval > 0,
                 .overwrites = command_line.overwrite,
                 .uses_gpus = gpus > 0};
  run.run = [&](std::int64_t number, std::int64_t start, bool may_overwrite) {
    if (start == 1) return launch_local(arguments_of_ranks(args), number);
    return launch_local(arguments_of_restart(arguments_of_ranks(args), may_overwrite), number);
  };
  run.why_not = [&](std::int64_t number) -> std::string {
    const std::int64_t now = gpus > 0 ? number_of_gpus() : 0;
    if (now < std::min(number, gpus)) return "this machine has " + counted(now, "GPU") + " left";
    if (std::string why = command_line.oversubscribe ? "" : too_many_ranks(number); !why.empty()) return why;
    return why_not_valid(command_line, number);
  };
  return supervise(run);
}

}  // namespace titan
