// What a run does once its first step is done: from there on its folder is its own, and its ranks are up to speed.
#pragma once

#include "config/job_config.h"
#include "distributed/world.h"
#include "train/step/step_observer.h"

namespace titan::train {

// Writes config.toml and gives collectives the time limit of training. A first step waits for everything that is made
// on first use; later ones do not, so that a hang shows sooner.
class FirstStep : public StepObserver {
 public:
  // Both must outlive this.
  FirstStep(const config::JobConfig& config, dist::World& world) : config_(config), world_(world) {}

  std::optional<RunEnd> after_step(const FinishedStep& step) override;

 private:
  const config::JobConfig& config_;
  dist::World& world_;
  bool is_done_ = false;
};

}  // namespace titan::train
