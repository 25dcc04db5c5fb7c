// Loops over ATen's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace titan::kernels {

// Calls body(first, past the last) for parts of [begin, end) of at least `grain` each, on at most at::get_num_threads()
// threads with one part each, and waits for them. Inside another such loop there is one part. Rethrows what a body
// throws.
//
// at::parallel_for() is a template that has threads only in files that are compiled with OpenMP; elsewhere it is a
// plain loop. This function is compiled with OpenMP: use it instead.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace titan::kernels
