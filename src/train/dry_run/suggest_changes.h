// Suggests changes to a configuration that does not fit a device.
#pragma once

#include <vector>

#include "train/dry_run/dry_run.h"

namespace titan::train {

// Returns at most four changes that reduce `demand`, each tried on the meta device. Changes that fit come first,
// beginning with the one that alters the run least; then the others, beginning with the smallest demand.
std::vector<Suggestion> suggest_changes(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                                        const Device& device, const Demand& demand);

}  // namespace titan::train
