// Loops over ATen's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace titan::kernels {

// Calls body(first, past the last) for parts of begin to end of at least `grain` each, one on each of at most
// at::get_num_threads() threads, and waits for them; in one part where another such loop is running. What a body
// throws is thrown here.
//
// at::parallel_for() is a template that has threads only in files that are compiled with OpenMP; elsewhere it is a
// plain loop. This is compiled with it, and is what to use.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace titan::kernels
