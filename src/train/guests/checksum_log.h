// Writes checksums.jsonl: checksums of the bits of every parameter and gradient. `titan-train compare` finds the first
// difference of two runs with them. They do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/run_layout.h"
#include "contract/train_contract.h"
#include "distributed/world.h"
#include "metrics/history/expendable.h"
#include "metrics/history/step_history.h"
#include "train/step/run_parameters.h"
#include "train/step/step_guest.h"

namespace titan::train {

class ChecksumLog : public StepGuest {
 public:
  // `freq`: debug.checksum_freq. 0 computes nothing, and only removes rows of an earlier start whose steps run again.
  // `finished_steps`: live count of the run. It, the parameters and the world must outlive this.
  ChecksumLog(std::filesystem::path folder, std::int64_t freq, const RunParameters& parameters, dist::World& world,
              const std::int64_t& finished_steps);

  // Takes the initial weights of a fresh run as row 0, before its first step.
  void before_step() override;
  // Takes the gradients as the optimizer gets them: of the mean loss, not clipped.
  at::Tensor before_update(const StepView& step) override;
  // Writes a row, with one all-reduce for all parameters. Only here the host waits for the device.
  Verdict after_step(const StepView& step) override;

 private:
  bool is_due(std::int64_t step) const { return freq_ > 0 && step % freq_ == 0; }
  at::Tensor sums_of_weights();
  void begin_history(std::int64_t step);
  void write(std::int64_t step, const at::Tensor& gradients, const at::Tensor& weights);

  std::filesystem::path folder_;
  std::int64_t freq_;
  dist::World& world_;
  const std::int64_t& finished_steps_;
  const RunParameters& parameters_;
  std::unique_ptr<metrics::StepHistory> history_;  // on rank 0, from the first step on
  metrics::Expendable file_{layout::kChecksumsFile};
  std::int64_t last_step_ = 0;  // last step that after_step() saw
  bool has_begun_ = false, is_fresh_ = false;
  at::Tensor initial_weights_, gradients_;  // [parameters], this rank's part, until they are written
};

}  // namespace titan::train
