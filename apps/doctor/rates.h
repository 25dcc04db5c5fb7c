// Checks that measure.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "distributed/world.h"

namespace titan::doctor {

// Measures what all-gathers and reduce-scatters between all ranks bring, and how fast each rank multiplies matrices, in
// `dtype` (as in training.mixed_precision_param) and in others. Collective; takes seconds. The same result on all ranks.
Checks check_ranks(dist::World& world, const std::string& dtype);

// Judges the FLOP/s of each rank in `dtype`: names those, and their machines, that are far behind the middle one.
Check check_matmul(const std::vector<double>& flops, const std::vector<std::string>& hosts, const std::string& dtype);

// Writes and flushes some MiB where `folder` is, or will be, and takes them away again. Not collective.
Check check_disk(const std::filesystem::path& folder);

}  // namespace titan::doctor
