// Helpers for the JSON of inspections.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "checkpoint/tools/verify.h"

namespace titan::checkpoint {

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

// Adds "intact", and "faults" with all of them.
inline void add_verdict(nlohmann::ordered_json& json, const std::vector<Fault>& faults) {
  json["intact"] = faults.empty();
  auto& list = json["faults"] = nlohmann::ordered_json::array();
  for (const Fault& fault : faults) list.push_back(escape_invalid_utf8(fault.text));
}

}  // namespace titan::checkpoint
