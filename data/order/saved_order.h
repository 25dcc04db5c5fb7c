// The data order to which a saved position belongs.
#pragma once

#include <string>
#include <vector>

#include "base/value.h"

namespace titan::data {

// Data orders. A checkpoint identifies each by a key that positions of the other order do not have.
enum class DataOrder { kElastic, kTorchTitan };

inline constexpr const char* kElasticKey = "dataloader.titan.order";
inline constexpr const char* kTorchTitanKey = "dataloader.world_size";

// The end of a message about a position that cannot be continued.
inline constexpr const char* kOrRestart =
    ", or set checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data from the beginning";

// Returns the keys of all orders.
std::vector<std::string> order_keys();

// Throws CheckpointError if `saved` has the key of another order and not that of `now`.
void check_order(const Values& saved, DataOrder now);

}  // namespace titan::data
