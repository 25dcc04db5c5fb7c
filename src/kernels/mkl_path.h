// Which code MKL, the library behind torch's fp32 products on CPU, runs on processors that are not Intel's.
#pragma once

namespace titan::kernels {

// MKL asks its own function mkl_serv_intel_cpu_true() whether the processor is an Intel one, and takes slow code on any
// other, whatever instructions it has: a third of the speed on AMD's. This program answers with a function of its own
// of that name, which takes precedence over the library's. With TITAN_MKL_AS_ON_INTEL=1 in the environment the answer
// is yes on every processor with AVX2 and FMA, and MKL chooses by the instructions that it finds; else it is what MKL's
// own would be. Not the default: it changes the last bit of MKL's erfinv, so of initial weights (docs/performance.md).
//
// Returns the answer; programs that are to have it call this once, so that the linker takes it in.
bool mkl_takes_fast_path();

}  // namespace titan::kernels
