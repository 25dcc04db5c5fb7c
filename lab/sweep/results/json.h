// JSON of a sweep, with keys in insertion order.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace titan::sweep {

using OrderedJson = nlohmann::ordered_json;

// Returns null for NaN and infinities, which JSON does not have; the trial's metrics tell which it was.
inline OrderedJson number_or_null(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

}  // namespace titan::sweep
