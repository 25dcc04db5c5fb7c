// The place of a checkpoint's key in the nested dictionary that PyTorch loads.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace titan::checkpoint {

// Path of a flat key in the nested state: "optimizer.state.X.step" -> {"optimizer", "state.X.step"}.
using StatePath = std::vector<std::variant<std::string, std::int64_t>>;

}  // namespace titan::checkpoint
