// Products and solvers of cuBLAS. Their arguments are not read but for the handle, so that NVIDIA's header, which would
// have them all declared, is left out.
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/kernels.h"
#include "tests/support/null_cuda/streams.h"

namespace {

constexpr int kExecutionFailed = 13;  // CUBLAS_STATUS_EXECUTION_FAILED

int count(const char* name, void* const* handle) {
  if (titan_null::device_error() == cudaSuccess) titan_null::launch(name, titan_null::stream_of(*handle));
  return titan_null::device_error() == cudaSuccess ? 0 : kExecutionFailed;
}

}  // namespace

#define TITAN_PRODUCT(name) \
  extern "C" int name(void* const* handle) { return count(#name, handle); }

TITAN_PRODUCT(cublasCdotc_v2)
TITAN_PRODUCT(cublasCdotu_v2)
TITAN_PRODUCT(cublasCgelsBatched)
TITAN_PRODUCT(cublasCgemmStridedBatched)
TITAN_PRODUCT(cublasCgemm_v2)
TITAN_PRODUCT(cublasCgemv_v2)
TITAN_PRODUCT(cublasCgeqrfBatched)
TITAN_PRODUCT(cublasCgetrfBatched)
TITAN_PRODUCT(cublasCgetrsBatched)
TITAN_PRODUCT(cublasCtrsmBatched)
TITAN_PRODUCT(cublasCtrsm_v2)
TITAN_PRODUCT(cublasDdot_v2)
TITAN_PRODUCT(cublasDgelsBatched)
TITAN_PRODUCT(cublasDgemmStridedBatched)
TITAN_PRODUCT(cublasDgemm_v2)
TITAN_PRODUCT(cublasDgemv_v2)
TITAN_PRODUCT(cublasDgeqrfBatched)
TITAN_PRODUCT(cublasDgetrfBatched)
TITAN_PRODUCT(cublasDgetrsBatched)
TITAN_PRODUCT(cublasDotEx)
TITAN_PRODUCT(cublasDtrsmBatched)
TITAN_PRODUCT(cublasDtrsm_v2)
TITAN_PRODUCT(cublasGemmEx)
TITAN_PRODUCT(cublasGemmStridedBatchedEx)
TITAN_PRODUCT(cublasSdot_v2)
TITAN_PRODUCT(cublasSgelsBatched)
TITAN_PRODUCT(cublasSgemmEx)
TITAN_PRODUCT(cublasSgemmStridedBatched)
TITAN_PRODUCT(cublasSgemm_v2)
TITAN_PRODUCT(cublasSgemv_v2)
TITAN_PRODUCT(cublasSgeqrfBatched)
TITAN_PRODUCT(cublasSgetrfBatched)
TITAN_PRODUCT(cublasSgetrsBatched)
TITAN_PRODUCT(cublasStrsmBatched)
TITAN_PRODUCT(cublasStrsm_v2)
TITAN_PRODUCT(cublasZdotc_v2)
TITAN_PRODUCT(cublasZdotu_v2)
TITAN_PRODUCT(cublasZgelsBatched)
TITAN_PRODUCT(cublasZgemmStridedBatched)
TITAN_PRODUCT(cublasZgemm_v2)
TITAN_PRODUCT(cublasZgemv_v2)
TITAN_PRODUCT(cublasZgeqrfBatched)
TITAN_PRODUCT(cublasZgetrfBatched)
TITAN_PRODUCT(cublasZgetrsBatched)
TITAN_PRODUCT(cublasZtrsmBatched)
TITAN_PRODUCT(cublasZtrsm_v2)
