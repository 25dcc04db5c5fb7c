// The train loop: fetches a step's data, takes the step, and shows it to the guests. run_parts.h builds everything
// else.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "train/run_parts.h"

namespace titan::train {

class Trainer {
 public:
  using End = RunEnd;

  explicit Trainer(RunParts parts) : run_(std::move(parts)) {}

  // Loads a checkpoint if there is one, then trains to training.steps. Collective.
  End train();

  std::int64_t finished_steps() const { return run_.state->step; }

 private:
  bool start();
  checkpoint::Loaded load();
  bool owes_validation(const checkpoint::Loaded& loaded) const;
  bool owes_evaluation(const checkpoint::Loaded& loaded) const;
  bool has_nothing_to_do(std::int64_t finished_steps) const;
  void attach_sinks();
  void announce_start() const;
  StepInput fetch();
  Verdict show(const StepView& step);
  End finish(End end);
  void check_record() const;
  void announce_end() const;
  void wait_for_device() const;

  RunParts run_;
};

}  // namespace titan::train
