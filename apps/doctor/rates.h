// Checks that measure.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "distributed/world.h"

namespace titan::doctor {

// What all-gathers and reduce-scatters between all ranks bring, and how fast each rank multiplies matrices of `dtype`.
// Collective; takes a second. The same result on all ranks.
Checks check_ranks(dist::World& world, c10::ScalarType dtype);

// Of that: FLOP/s of each rank, and the machines they run on. Names those that are far behind the middle one.
Check check_matmul(const std::vector<double>& flops, const std::vector<std::string>& hosts, const std::string& dtype);

// Writes and flushes some MiB where `folder` is, or will be, and takes them away again. Not collective.
Check check_disk(const std::filesystem::path& folder);

}  // namespace titan::doctor
