// Reads values of a config.json. null means that a key is missing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/limits/parse_json.h"

namespace titan::models {

// Returns the value of a key, or null if it is missing or JSON null.
inline const nlohmann::json* find(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

// Throws ConfigError for a value that is not an integer.
inline std::int64_t integer_at(const nlohmann::json& value, const char* key) {
  if (const auto integer = integer_of(value)) return *integer;
  throw ConfigError(std::string(key) + ": expected an integer, found " + value.dump());
}

// Throws ConfigError for another value than an integer where `T` is one; else nlohmann's exception for another type.
template <typename T>
T value_or(const nlohmann::json& json, const char* key, T otherwise) {
  const nlohmann::json* found = find(json, key);
  if (!found) return otherwise;
  if constexpr (std::is_same_v<T, std::int64_t>) return integer_at(*found, key);
  return found->get<T>();
}

}  // namespace titan::models
