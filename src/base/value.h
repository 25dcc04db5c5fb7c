// State that is not a tensor: the Python values that a checkpoint may hold.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace titan {

// None, bool, int (64 bits), float, str (UTF-8), bytes, list, tuple or dict, nested to any depth.
// Dictionaries keep their order.
class Value {
 public:
  struct Bytes {
    std::string data;
    bool operator==(const Bytes&) const = default;
  };
  struct List {
    std::vector<Value> items;
    bool operator==(const List&) const;
  };
  struct Tuple {
    std::vector<Value> items;
    bool operator==(const Tuple&) const;
  };
  struct Dict {
    std::vector<std::pair<Value, Value>> items;
    bool operator==(const Dict&) const;
    // Returns the value under a string key, or null.
    const Value* find(const std::string& key) const;
    // Same, but throws CheckpointError "<what> has no entry <key>" if there is none.
    const Value& at(const std::string& key, const std::string& what) const;
  };
  using Variant = std::variant<std::monostate, bool, std::int64_t, double, std::string, Bytes, List, Tuple, Dict>;

  Value() = default;  // None
  template <std::same_as<bool> T>
  Value(T value) : data_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : data_(static_cast<std::int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(Bytes value) : data_(std::move(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Tuple value) : data_(std::move(value)) {}
  Value(Dict value) : data_(std::move(value)) {}

  static Value bytes(std::string data) { return Value(Bytes{std::move(data)}); }
  static Value list(std::vector<Value> items) { return Value(List{std::move(items)}); }
  static Value tuple(std::vector<Value> items) { return Value(Tuple{std::move(items)}); }
  static Value dict(std::vector<std::pair<Value, Value>> items) { return Value(Dict{std::move(items)}); }
  // A list of int.
  static Value ints(const std::vector<std::int64_t>& numbers) {
    return list(std::vector<Value>(numbers.begin(), numbers.end()));
  }

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  const Variant& variant() const { return data_; }

  // Typed access. Each throws CheckpointError "<what> is a Python <type>, expected <type>";
  // as_double also accepts an int.
  bool as_bool(const std::string& what) const;
  std::int64_t as_int(const std::string& what) const;
  double as_double(const std::string& what) const;
  const std::string& as_string(const std::string& what) const;
  const std::string& as_bytes(const std::string& what) const;
  const std::vector<Value>& as_sequence(const std::string& what) const;  // list or tuple
  std::vector<std::int64_t> as_ints(const std::string& what) const;      // list or tuple of int
  const Dict& as_dict(const std::string& what) const;

  // "None", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict"
  const char* type_name() const;

  bool operator==(const Value&) const = default;

 private:
  Variant data_;
};

inline bool Value::List::operator==(const List& other) const { return items == other.items; }
inline bool Value::Tuple::operator==(const Tuple& other) const { return items == other.items; }
inline bool Value::Dict::operator==(const Dict& other) const { return items == other.items; }

// Values by their keys in a checkpoint.
using Values = std::map<std::string, Value>;

// Returns the value of `key`. Throws CheckpointError "the checkpoint state has no <key>".
const Value& value_at(const Values& values, const std::string& key);

}  // namespace titan
