// Which code MKL, the library behind torch's fp32 products on CPU, runs on processors that are not Intel's.
#pragma once

namespace titan::kernels {

// MKL asks its own function mkl_serv_intel_cpu_true() whether the processor is an Intel one, and multiplies with slow
// code on any other, whatever instructions it has: a third of the speed on AMD's. This program answers with a function
// of its own of that name, which takes precedence over the library's.
//
// Its elementwise functions (VML: erfinv, log, ...) ask mkl_vml_serv_cpu_detect(), which this program answers as well:
// they keep the code that they would have run, so that initial weights, which are drawn through erfinv, are PyTorch's
// on the same machine to the bit.
enum class MklPath {
  kByInstructions,  // yes on every processor with AVX2 and FMA; MKL chooses by the instructions that it finds
  kByVendor,        // what MKL itself would answer
};

// For the process. MKL asks once: call this before the first product. Without a call it is kByInstructions.
void choose_mkl_path(MklPath path);

// Whether products take the fast code with that choice. Programs that are to answer MKL call this or choose_mkl_path(),
// so that the linker takes both functions in.
bool mkl_takes_fast_code();

}  // namespace titan::kernels
