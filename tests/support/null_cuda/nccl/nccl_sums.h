#pragma once

#include <nccl.h>

#include <cstddef>

namespace titan_null {

// How numbers of several ranks become one.
struct Reduction {
  ncclRedOp_t kind = ncclSum;
  double factor = 1;  // applied to each number first, for ncclAvg and for sums with a factor
};

std::size_t size_of(ncclDataType_t type);

// Reads one number of a type as a double.
double number_at(const void* address, ncclDataType_t type);

// Writes the reduction of `count` numbers, each from `num_parts` places, in their order.
void reduce(const char* const* parts, int num_parts, std::size_t count, ncclDataType_t type, const Reduction& how,
            char* to);

}  // namespace titan_null
