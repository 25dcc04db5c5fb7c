// Runs CUDA kernels that a C++ compiler has compiled. The threads of a block are fibers of one thread of the host: they
// take turns at barriers and shuffles only, in a drawn order. Blocks share two threads of the host. ThreadSanitizer
// takes each fiber for a thread that barriers order and shuffles do not, as in CUDA. It reports what a kernel leaves
// unordered, whatever the turns, within a block and between neighboring blocks. AddressSanitizer sees each access.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace titan::test {

struct LaunchShape {
  unsigned blocks, threads;  // threads of a block
  std::size_t shared;        // bytes of dynamic shared memory of a block
};

// Calls body() in each thread of each block, and waits for all. Ends the process with a message if threads of a block
// wait for each other for ever: at a barrier, some of them having ended, or in a shuffle that not all of a warp enter.
void run_kernel(const LaunchShape& shape, const std::function<void()>& body);

// These are for the threads that run.
unsigned thread_index();
unsigned block_index();
unsigned num_blocks();
void sync_block();
// Returns the value of the thread of the warp whose index differs in the bits of `apart`.
float shuffled(float value, int apart);

// Returns the memory of this thread of the host that stands for a block's dynamic shared memory. NaNs are in it before
// a block starts.
std::span<float> dynamic_shared_memory();

}  // namespace titan::test
