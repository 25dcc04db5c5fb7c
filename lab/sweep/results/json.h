// JSON as a sweep writes it: keys stay in order.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace titan::sweep {

using OrderedJson = nlohmann::ordered_json;

// JSON has no NaN and no infinity; the trial's metrics tell which of them it was.
inline OrderedJson number_or_null(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

}  // namespace titan::sweep
