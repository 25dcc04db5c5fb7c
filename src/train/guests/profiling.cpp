#include "train/guests/profiling.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/phase.h"
#include "config/keys/rank_list.h"

namespace titan::train {
namespace {

std::filesystem::path traces_folder(const config::JobConfig& config) {
  return std::filesystem::path(config.job.dump_folder) / config.profiling.save_traces_folder;
}

}  // namespace

Profiling::Profiling(const config::JobConfig& config, const dist::World& world, nn::Module& model)
    : config_(config),
      is_profiled_(config::RankList(config.profiling.ranks).contains(world.rank())),
      rank_(world.rank()),
      schedule_(config.profiling),
      kineto_(world.device(), {world.rank(), world.size()}) {
  if (is_profiled_) nn::show_names_in_profiles(model);
  spdlog::info("profiling is on: traces of {} of every {} steps go to {}", config.profiling.profiler_active,
               config.profiling.profile_freq, traces_folder(config).string());
}

void Profiling::before_step() {
  if (!is_profiled_) return;
  const std::int64_t step = phase_log().step();
  const auto action = schedule_.action_of(step);
  if (action == profile::Action::kNone) return;
  if (!is_ready_) kineto_.prepare();
  is_ready_ = true;
  if (action != profile::Action::kWarmUp) begin_step(step);
}

// torch.profiler names its ranges by the number of finished steps.
void Profiling::begin_step(std::int64_t step) {
  if (!recording_) {
    kineto_.start();
    recording_ = Recording{.first_step = step, .phases = std::make_unique<profile::PhaseRanges>()};
  }
  recording_->step = std::make_unique<NamedRange>([step] { return "ProfilerStep#" + std::to_string(step - 1); });
}

Verdict Profiling::after_step(const StepView& step) {
  if (!recording_) return Verdict::go_on();
  recording_->step.reset();
  // Work at the end of training is not part of a step, so the last step saves the trace.
  const bool is_last = step.number == config_.training.steps;
  if (is_last || schedule_.action_of(step.number) == profile::Action::kRecordAndSave) save(step.number);
  return Verdict::go_on();
}

// Saves the trace. A failure only warns, and does not end training.
void Profiling::save(std::int64_t last_step) {
  const std::int64_t first_step = recording_->first_step;
  recording_.reset();
  is_ready_ = false;
  const PhaseScope phase(Phase::kLog);
  const auto begin = std::chrono::steady_clock::now();
  auto trace = kineto_.stop();
  if (speaks_for_all()) times_.add(trace.events());
  const auto path =
      traces_folder(config_) / fmt::format("iteration_{}", last_step) / fmt::format("rank{}_trace.json", rank_);
  try {
    trace.save(path);
    spdlog::info("profile of {}: wrote {} in {:.2f} s",
                 first_step == last_step ? fmt::format("step {}", last_step)
                                         : fmt::format("steps {} to {}", first_step, last_step),
                 path.string(), seconds_between(begin, std::chrono::steady_clock::now()));
  } catch (const Error& error) {
    spdlog::warn(error.what());
  }
}

void Profiling::finish(RunEnd /*end*/, std::int64_t finished_steps) {
  if (recording_) {
    recording_->step.reset();
    save(finished_steps);
  } else if (is_ready_) {
    kineto_.start();
    kineto_.stop();  // there was only warm-up
  }
  constexpr std::size_t kOperators = 6;
  for (const auto& line : times_.lines(kOperators)) spdlog::info(line);
}

}  // namespace titan::train
