// Reads values of a config.json. null means that a key is missing.
#pragma once

#include <nlohmann/json.hpp>

namespace titan::models {

// Returns the value of a key, or null if it is missing or JSON null.
inline const nlohmann::json* find(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

// Throws nlohmann's exception for a value of another type.
template <typename T>
T value_or(const nlohmann::json& json, const char* key, T otherwise) {
  const nlohmann::json* found = find(json, key);
  return found ? found->get<T>() : otherwise;
}

}  // namespace titan::models
