// Makes the id of a save.
#pragma once

#include <string>

namespace titan::checkpoint {

// Returns a random UUID (version 4), as DCP stores with each save.
std::string new_save_id();

}  // namespace titan::checkpoint
