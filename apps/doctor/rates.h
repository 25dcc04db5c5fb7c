// Checks that measure collectives, matmuls and the disk.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "distributed/world.h"

namespace titan::doctor {

// Measures the rates of all-gather and reduce-scatter between all ranks, and each rank's matmul rate, in `dtype` (as
// in training.mixed_precision_param) and in others. Collective; takes seconds. Returns the same result on all ranks.
Checks check_ranks(dist::World& world, const std::string& dtype);

// Judges the FLOP/s of each rank in `dtype`: names the ranks, and their machines, that are far below the median.
Check check_matmul(const std::vector<double>& flops, const std::vector<std::string>& hosts, const std::string& dtype);

// Measures the disk of `folder`, which need not exist yet: writes and flushes 32 MiB, then removes them. Not
// collective.
Check check_disk(const std::filesystem::path& folder);

}  // namespace titan::doctor
