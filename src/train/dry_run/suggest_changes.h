// What to change in a configuration that does not fit a device.
#pragma once

#include <vector>

#include "train/dry_run/dry_run.h"

namespace titan::train {

// At most four changes that make less of `demand`, each tried on the meta device: those that fit first, the one that alters the
// run least before the others; then the rest, the smallest first.
std::vector<Suggestion> suggest_changes(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                                        const Device& device, const Demand& demand);

}  // namespace titan::train
