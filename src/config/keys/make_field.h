// Makes the part of a row that follows from the type of its JobConfig member. For fields.cpp only.
#pragma once

#include <type_traits>

#include "config/keys/fields.h"

namespace titan::config::detail {

template <class T>
struct Unwrap {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct Unwrap<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};

template <class T>
constexpr ValueKind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return ValueKind::kBool;
  if constexpr (std::is_same_v<T, std::int64_t>) return ValueKind::kInt;
  if constexpr (std::is_same_v<T, double>) return ValueKind::kFloat;
  if constexpr (std::is_same_v<T, std::string>) return ValueKind::kString;
  if constexpr (std::is_same_v<T, StringList>) return ValueKind::kStringList;
  if constexpr (std::is_same_v<T, StringLists>) return ValueKind::kStringLists;
}

template <class T>
FieldValue read(const T& member) {
  if constexpr (Unwrap<T>::optional) {
    return member ? FieldValue(*member) : FieldValue(None{});
  } else {
    return member;
  }
}

template <class T>
void write(T& member, const FieldValue& value) {
  if constexpr (Unwrap<T>::optional) {
    if (std::holds_alternative<None>(value)) {
      member.reset();
      return;
    }
  }
  member = std::get<typename Unwrap<T>::type>(value);
}

template <class T>
Field make_field(const char* key, FieldValue (*get)(const JobConfig&), void (*set)(JobConfig&, const FieldValue&)) {
  return Field{key, {}, {}, {}, kind_of<typename Unwrap<T>::type>(), Unwrap<T>::optional, get, set};
}

}  // namespace titan::config::detail
