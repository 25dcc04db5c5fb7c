// CPUs have no stated peak worth dividing by; this measures one.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/clock.h"

namespace titan::metrics {

// The best FLOP/s of a large square matrix product with the threads that this rank has (at::get_num_threads()). Takes
// about 50 ms, more on a slow CPU (three products at least): call it once, after the first logged step, so that it does
// not delay that step, and on all ranks of a machine at the same time, so that they share its cores as they do in
// training. For float32 the faster of the two libraries behind torch counts, and for a type that this processor is slow
// in the figure is float32's. The random generator and the host arena (kernels/memory) are not touched.
double measure_cpu_peak_flops(c10::ScalarType dtype, const Clock& clock = std::chrono::steady_clock::now);

}  // namespace titan::metrics
