// checksums.jsonl: numbers for the bits of every parameter and gradient, which `titan-train compare` finds the first
// difference of two runs by. They do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "contract/train_contract.h"
#include "distributed/world.h"
#include "metrics/history/step_history.h"
#include "train/step/step_observer.h"

namespace titan::train {

class ChecksumLog : public StepObserver {
 public:
  // `freq`: debug.checksum_freq. With 0 nothing is computed, and only the rows of an earlier start go whose steps run
  // again. `finished_steps`: of the run, live. The model, the world and it must outlive this.
  ChecksumLog(std::filesystem::path folder, std::int64_t freq, LanguageModel& model, dist::World& world,
              const std::int64_t& finished_steps);

  // Before a fresh run's first step: the weights that it begins with, as row 0.
  void before_step() override;
  // Between the backward pass and the update of step `step`, which may scale gradients in place: as the optimizer gets
  // them, of the mean loss, not clipped.
  void take_gradients(std::int64_t step);
  // One exchange between all ranks for all parameters, and the only time that the host waits for the device.
  std::optional<RunEnd> after_step(const FinishedStep& step) override;

 private:
  bool is_due(std::int64_t step) const { return freq_ > 0 && step % freq_ == 0; }
  at::Tensor sums_of_weights();
  void begin_history(std::int64_t step);
  void write(std::int64_t step, const at::Tensor& gradients, const at::Tensor& weights);

  std::filesystem::path folder_;
  std::int64_t freq_;
  dist::World& world_;
  const std::int64_t& finished_steps_;
  std::vector<nn::NamedParameter> parameters_;
  std::unique_ptr<metrics::StepHistory> history_;  // on rank 0, from the first step on
  std::int64_t last_step_ = 0;                     // that after_step() saw
  bool has_begun_ = false, is_fresh_ = false;
  at::Tensor initial_weights_, gradients_;  // [parameters], this rank's part, until they are written
};

}  // namespace titan::train
