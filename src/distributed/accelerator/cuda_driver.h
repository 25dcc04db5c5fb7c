// The CUDA driver of this machine, asked without a CUDA runtime: whether this build can compute with it.
#pragma once

#include <string>

namespace titan::dist {

struct CudaDriver {
  bool is_there = false;  // libcuda.so.1 can be loaded
  bool starts = false;
  int num_devices = 0;
  int version = 0;                  // of the newest CUDA that it runs: 1000 * major + 10 * minor; 0 if it does not say
  bool has_virtual_memory = false;  // on every device: what expandable segments of the allocator need
};

// Asks libcuda.so.1, in about a millisecond. The library stays loaded.
CudaDriver ask_cuda_driver();

// Returns why a build for CUDA `needed` (in the driver's form of a version) cannot compute with `driver`; empty if it can.
// A driver runs every CUDA of its own major version and of earlier ones.
std::string why_unusable(const CudaDriver& driver, int needed);

// Returns why kernels that were compiled for compute capability `lowest` (10 * major + minor) and later do not run on a
// device of `capability`; empty if they do.
std::string why_no_kernels(const std::string& device_name, int capability, int lowest);

}  // namespace titan::dist
