// Which builds of a kernel the tests can run here.
#pragma once

#include <initializer_list>
#include <iostream>
#include <utility>
#include <vector>

#include "kernels/isa.h"

namespace titan::kernels {

// Those of `all` whose instructions this processor has; a line says which it has not.
template <typename Kernels>
std::vector<const Kernels*> of_this_machine(std::initializer_list<std::pair<Isa, const Kernels*>> all) {
  std::vector<const Kernels*> out;
  for (const auto& [isa, kernels] : all) {
    if (isa <= best_isa()) {
      out.push_back(kernels);
    } else {
      std::cout << "not run, this processor has no such instructions: " << kernels->name << "\n";
    }
  }
  return out;
}

}  // namespace titan::kernels
