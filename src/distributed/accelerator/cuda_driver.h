// Queries this machine's CUDA driver without a CUDA runtime, to find out if this build can compute with it.
#pragma once

#include <string>

namespace titan::dist {

struct CudaDriver {
  bool is_there = false;  // libcuda.so.1 can be loaded
  bool starts = false;
  int num_devices = 0;
  int version = 0;                  // newest CUDA that it supports: 1000 * major + 10 * minor; 0 if unknown
  bool has_virtual_memory = false;  // on every device; the allocator's expandable segments need it
};

// Queries libcuda.so.1, in about a millisecond. The library stays loaded.
CudaDriver ask_cuda_driver();

// Returns why a build for CUDA `needed` (encoded like CudaDriver::version) cannot compute with `driver`; empty if it
// can. A driver supports every CUDA of its own major version and of earlier ones.
std::string why_unusable(const CudaDriver& driver, int needed);

// Returns why there is no CUDA module at `path`. `missing` is what the build lacked to make it; empty if it made one.
std::string why_no_module(const std::string& path, const std::string& missing);

// Returns why kernels that were compiled for compute capability `lowest` (10 * major + minor) and later do not run on a
// device of `capability`; empty if they do.
std::string why_no_kernels(const std::string& device_name, int capability, int lowest);

}  // namespace titan::dist
