// Measures a CPU's peak FLOP/s; vendors state none worth dividing by.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/clock.h"

namespace titan::metrics {

// Returns the best FLOP/s of a large square matmul with this rank's threads (at::get_num_threads()). Takes about 50 ms,
// more on a slow CPU (at least three matmuls). Call once, after the first logged step, so that it does not delay that
// step, and on all ranks of a machine at the same time, so that they share its cores as in training. For float32 the
// faster of torch's two libraries counts; for a type that this processor is slow in, the value is float32's. Does not
// touch the random generator and the host arena (kernels/memory).
double measure_cpu_peak_flops(c10::ScalarType dtype, const Clock& clock = std::chrono::steady_clock::now);

}  // namespace titan::metrics
