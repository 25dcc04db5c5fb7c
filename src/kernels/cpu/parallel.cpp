// Compiled with OpenMP, see CMakeLists.txt.
#include "kernels/cpu/parallel.h"

#include <ATen/Parallel.h>

namespace titan::kernels {

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace titan::kernels
