// Which order a saved data position is of.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"

namespace titan::data {

// The ways to put data in order; a checkpoint knows each by a key that the positions of no other have.
enum class DataOrder { kElastic, kTorchTitan };

inline constexpr const char* kElasticKey = "dataloader.titan.order";
inline constexpr const char* kTorchTitanKey = "dataloader.world_size";

// The end of a message about a position that cannot be continued.
inline constexpr const char* kOrRestart =
    ", or set checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data from the beginning";

// The key of every order.
std::vector<std::string> order_keys();

// Throws CheckpointError when `saved` has the key of another order, and not that of `now`.
void check_order(const Values& saved, DataOrder now);

}  // namespace titan::data
