// How an operator runs while its module's operators are recorded (nn/ops/op_trace.h).
#pragma once

#include <utility>

#include "nn/ops/op_trace.h"

namespace titan::nn {

// Runs an operator under a trace. `compute` returns its output; `keep` returns what its gradient needs, the output
// first; `restore` turns these into the output with its node.
template <typename Compute, typename Keep, typename Restore>
at::Tensor run_traced(OpTrace& trace, const Op& op, bool keepable, Compute compute, Keep keep, Restore restore) {
  at::Tensor out;
  switch (trace.begin(op, keepable)) {
    case OpTrace::Action::kTake:
      out = restore(trace.take());
      break;
    case OpTrace::Action::kComputeAndKeep: {
      KeptTensors kept = keep();
      out = kept.tensors[0];
      trace.keep(std::move(kept));
      break;
    }
    case OpTrace::Action::kCompute:
      out = compute();
  }
  trace.end(out);
  return out;
}

}  // namespace titan::nn
