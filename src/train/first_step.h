// Observes the first step of a run. After it the run owns its folder, and its ranks are up to speed.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/threads/ticker.h"
#include "config/job_config.h"
#include "distributed/world.h"
#include "metrics/metrics_processor.h"
#include "nn/module.h"
#include "train/slow_first_step.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Shows the progress of the first step while it runs, and logs it if the step is slow. Then writes the files with which
// the run can be repeated (run_folder.h), and sets the time limit of collectives for training: a first step includes
// one-time initialization, later ones do not, so a shorter limit shows a hang sooner.
class FirstStep : public StepGuest {
 public:
  // Adds hooks to the layers of `model`. `chat_template`: see TokenizerFacts. All must outlive this.
  FirstStep(const config::JobConfig& config, const std::string& chat_template, dist::World& world, nn::Module& model,
            metrics::MetricsProcessor& metrics);

  void before_step() override;
  Verdict after_step(const StepView& step) override;

 private:
  void tick();

  const config::JobConfig& config_;
  const std::string& chat_template_;
  dist::World& world_;
  metrics::MetricsProcessor& metrics_;
  SlowFirstStep slow_;  // used by the ticker's thread only
  TimePoint begin_;
  bool is_done_ = false;
  std::unique_ptr<Ticker> ticker_;  // last member: destroyed first
};

}  // namespace titan::train
