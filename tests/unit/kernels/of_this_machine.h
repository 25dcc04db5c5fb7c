// Selects the builds of a kernel that the tests can run here.
#pragma once

#include <iostream>
#include <utility>
#include <vector>

#include "kernels/cpu/isa.h"

namespace titan::kernels {

// Returns the builds whose instructions this processor has; prints a line for each of the others.
template <typename Kernels>
std::vector<const Kernels*> of_this_machine(const Kernels& plain, const Kernels& avx2, const Kernels& avx512) {
  std::vector<const Kernels*> out;
  for (const auto& [isa, kernels] : {std::pair(Isa::kPlain, &plain), {Isa::kAvx2, &avx2}, {Isa::kAvx512, &avx512}}) {
    if (isa <= best_isa()) {
      out.push_back(kernels);
    } else {
      std::cout << "not run, this processor has no such instructions: " << kernels->name << "\n";
    }
  }
  return out;
}

}  // namespace titan::kernels

// The builds of `name` that this machine runs, from the same list as TITAN_BEST_KERNELS.
#if defined(__x86_64__)
#define TITAN_KERNELS_OF_THIS_MACHINE(name) of_this_machine(plain::name, avx2::name, avx512::name)
#else
#define TITAN_KERNELS_OF_THIS_MACHINE(name) \
  std::vector { &plain::name }
#endif
