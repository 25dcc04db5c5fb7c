// The input and the results of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "contract/batch.h"

namespace titan::train {

// Input of a step, and what the ranks agreed on when they counted its tokens.
struct StepInput {
  std::vector<Batch> microbatches;       // this rank's batches
  std::int64_t local_valid_tokens = 0;   // labels that count, on this rank
  std::int64_t global_valid_tokens = 0;  // labels that count, on all ranks
  bool stop = false;                     // some rank was asked to stop, or record_failed
  bool record_failed = false;            // metrics.jsonl cannot be written any more
  bool save_due = false;                 // checkpoint.interval_minutes have passed on some rank
  bool is_saving = false;                // some rank still writes a checkpoint in the background
};

// Results of a step, on the device; they are not read back before a step is logged.
struct StepOutput {
  at::Tensor loss;        // 0-d: this rank's sum of losses over the global number of valid tokens
  at::Tensor grad_norm;   // 0-d, of the full gradient, before clipping
  at::Tensor grad_norms;  // [parameters], float32: of each full gradient, before clipping, in the optimizer's order
  at::Tensor grad_scale;  // 0-d: factor that scaled this step's loss; undefined without float16
  at::Tensor skipped;     // 0-d: 1 if a guest vetoed this step's update, else 0; undefined means 0
  double lr = 0;
};

}  // namespace titan::train
