#pragma once

// Errors of CUDA's runtime and the device of the calling thread.

#include <cuda_runtime_api.h>

namespace titan_null {

// Returns the device that is current in this thread.
int current_device();
void set_current_device(int device);

// Keeps the error as the last one of this thread, and returns it; if the device has failed, its error instead.
cudaError_t result(cudaError_t error);

// Makes every later call of this process fail with the error, as a fault of a kernel does.
void fail_device(cudaError_t error);

// Returns the error of a failed device; cudaSuccess if none failed.
cudaError_t device_error();

// Returns the reason for which no device can be used: cudaSuccess, an old driver, or that there is no device.
cudaError_t why_no_device();

}  // namespace titan_null
