// profiling.enable_profiling: writes traces of some steps, and logs where their time went.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "config/job_config.h"
#include "distributed/world.h"
#include "nn/module.h"
#include "profile/kineto.h"
#include "profile/phase_ranges.h"
#include "profile/profile_schedule.h"
#include "profile/step_times.h"
#include "trace/named_range.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Writes <dump_folder>/<save_traces_folder>/iteration_N/rankR_trace.json after step N, as TorchTitan does, on the
// ranks of profiling.ranks; does nothing on others. If training ends among recorded steps, writes the steps so far.
// The modules of `model` appear under their names. At the end, rank 0 logs where the time of its recorded steps went.
// Not collective.
class Profiling : public StepGuest {
 public:
  // All must outlive this.
  Profiling(const config::JobConfig& config, const dist::World& world, nn::Module& model);

  void before_step() override;
  Verdict after_step(const StepView& step) override;
  void finish(RunEnd end, std::int64_t finished_steps) override;

 private:
  // State while steps are recorded.
  struct Recording {
    std::int64_t first_step;
    std::unique_ptr<profile::PhaseRanges> phases = {};
    std::unique_ptr<NamedRange> step = {};
  };

  void begin_step(std::int64_t step);
  void save(std::int64_t last_step);

  const config::JobConfig& config_;
  bool is_profiled_;  // this rank
  std::int64_t rank_;
  profile::Schedule schedule_;
  profile::Kineto kineto_;
  profile::StepTimes times_;
  bool is_ready_ = false;
  std::optional<Recording> recording_;
};

}  // namespace titan::train
