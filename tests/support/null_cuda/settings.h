#pragma once

// The null CUDA runtime answers CUDA's driver, CUDA's runtime, NCCL, and the parts of cuBLAS and cuDNN that a start
// needs, on a machine without a GPU. Preload it (LD_PRELOAD) into a program that uses torch's CUDA wheel: torch's
// allocator, streams, guards and ProcessGroupNCCL then run as they do on GPUs. Device memory is memory of the host,
// copies are real, collectives really exchange between the processes of one machine, and kernels are counted by name
// but not run: values that a kernel would have computed are whatever the memory holds, mostly zeros.
//
//   NULL_CUDA_DEVICES     number of devices (8)
//   NULL_CUDA_MEMORY      bytes of memory per device (80 GiB)
//   NULL_CUDA_CAPABILITY  compute capability (9.0, an H100's, at which torch prefers cuDNN's attention; 8.0 takes
//                         torch's flash attention)
//   NULL_CUDA_DRIVER      version of the driver (13000); 12040 is one that runs CUDA 12.4 and earlier
//   NULL_CUDA_READ        zeros: copies from a device to the host bring zeros, not what the memory holds (memory).
//                         Losses, norms and sampled tokens are then the same in each run, and finite
//   NULL_CUDA_MOVED       bytes, from the first on, that a copy within devices, or a collective of each rank, really
//                         moves (all): with 0 a model as large as on GPUs fits the host, because nobody writes most of
//                         its memory
//   NULL_CUDA_MACHINE     number of the machine that the devices are of (0): those of two machines differ, though they
//                         have the same numbers there
//   NULL_CUDA_TRACE       folder that gets null_cuda.RANK.PID.json from each process that used a device
//   NULL_CUDA_OBSERVER    library that is opened in each process that uses a device (observer.h); empty: none
//   NULL_CUDA_FAULT       rules with ';' between them, each a kind, and words key=value in any order:
//
//     illegal_access launch=N    the Nth kernel launch, and every call after it, fails with an illegal memory access
//     hang_kernel launch=N       the stream of the Nth kernel launch never goes on
//     kill launch=N              the process ends by SIGKILL at its Nth kernel launch
//     out_of_memory malloc=N     the Nth allocation on a device, and each after it, fails
//     hang collective=N          the Nth NCCL call of the process never completes, until it is aborted
//     remote_error collective=N  the same, and NCCL reports ncclRemoteError
//     rank=R                     the rule is for this rank alone; without it, for each process
//
// Launches, allocations and NCCL calls are counted from 1, per process.

#include <cstddef>
#include <string>

namespace titan_null {

struct Settings {
  int num_devices = 8;
  std::size_t memory = std::size_t{80} << 30;  // bytes per device
  int major = 9, minor = 0;                    // compute capability
  int machine = 0;
  int driver_version = 13000;           // as cudaDriverGetVersion counts
  std::size_t moved = ~std::size_t{0};  // most bytes of a copy within devices, or of a rank in a collective
  bool reads_zeros = false;             // instead of what the memory of a device holds
  std::string trace_folder;             // empty if nothing is traced
  std::string observer;                 // a library's path; empty if there is none
};

// Returns the settings of the environment, which is read once.
const Settings& settings();

// Returns the rank of this process by its environment, read at the first call; 0 if it has none.
int own_rank();

// True if a rule of the environment makes event number `count` of this kind fail. Kinds named `hang` and `kill` fail
// once, at that number; the others from it on.
bool is_faulty(const char* kind, long count);

}  // namespace titan_null
