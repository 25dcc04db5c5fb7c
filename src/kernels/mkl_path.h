// Chooses the code that MKL, the library behind torch's fp32 matmuls on CPU, runs on processors that are not Intel's.
#pragma once

namespace titan::kernels {

// MKL calls its own function mkl_serv_intel_cpu_true() to ask if the processor is an Intel one. On any other it
// multiplies with slow code, whatever instructions it has: a third of the speed on AMD's. This program defines a
// function of that name, which takes precedence over the library's.
//
// MKL's elementwise functions (VML: erfinv, log, ...) call mkl_vml_serv_cpu_detect(), which this program defines as
// well. They keep the code that they would have run anyway, so that initial weights, which are drawn through erfinv,
// equal PyTorch's on the same machine to the bit.
enum class MklPath {
  kByInstructions,  // yes on every processor with AVX2 and FMA; MKL chooses by the instructions that it finds
  kByVendor,        // MKL's own answer
};

// Sets the choice for the process. MKL asks once: call this before the first matmul. The default is kByInstructions.
void choose_mkl_path(MklPath path);

// True if matmuls take the fast code with the current choice. A program that must answer MKL calls this or
// choose_mkl_path(), so that the linker includes both functions that MKL calls.
bool mkl_takes_fast_code();

}  // namespace titan::kernels
