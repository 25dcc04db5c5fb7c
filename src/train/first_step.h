// Accompanies a run to the end of its first step: from there on its folder is its own, and its ranks are up to speed.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/process/ticker.h"
#include "config/job_config.h"
#include "distributed/world.h"
#include "metrics/metrics_processor.h"
#include "nn/module.h"
#include "train/slow_first_step.h"
#include "train/step/step_observer.h"

namespace titan::train {

// Shows how far the step is while it runs, and says so in the log where it takes long. Then writes config.toml and gives
// collectives the time limit of training: a first step waits for everything that is made on first use; later ones do
// not, so that a hang shows sooner.
class FirstStep : public StepObserver {
 public:
  // Adds hooks to the layers of `model`. All must outlive this.
  FirstStep(const config::JobConfig& config, dist::World& world, nn::Module& model, metrics::MetricsProcessor& metrics);

  void before_step() override;
  std::optional<RunEnd> after_step(const FinishedStep& step) override;

 private:
  void tick();

  const config::JobConfig& config_;
  dist::World& world_;
  metrics::MetricsProcessor& metrics_;
  SlowFirstStep slow_;  // of the ticker's thread
  TimePoint begin_;
  bool is_done_ = false;
  std::unique_ptr<Ticker> ticker_;  // the first to end
};

}  // namespace titan::train
