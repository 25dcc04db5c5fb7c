#include "base/value.h"

#include <array>

#include "base/error.h"

namespace titan {
namespace {

[[noreturn]] void fail(const Value& value, const std::string& what, const char* expected) {
  throw CheckpointError(what + " is a Python " + value.type_name() + ", expected " + expected);
}

template <typename T>
const T& get(const Value& value, const std::string& what, const char* expected) {
  if (const T* found = std::get_if<T>(&value.variant())) return *found;
  fail(value, what, expected);
}

}  // namespace

const Value* Value::Dict::find(const std::string& key) const {
  for (const auto& [name, value] : items) {
    const auto* text = std::get_if<std::string>(&name.variant());
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

const Value& Value::Dict::at(const std::string& key, const std::string& what) const {
  if (const Value* value = find(key)) return *value;
  throw CheckpointError(what + " has no entry " + key);
}

bool Value::as_bool(const std::string& what) const { return get<bool>(*this, what, "bool"); }

std::int64_t Value::as_int(const std::string& what) const { return get<std::int64_t>(*this, what, "int"); }

double Value::as_double(const std::string& what) const {
  if (const auto* integer = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*integer);
  return get<double>(*this, what, "float");
}

const std::string& Value::as_string(const std::string& what) const { return get<std::string>(*this, what, "str"); }

const std::string& Value::as_bytes(const std::string& what) const { return get<Bytes>(*this, what, "bytes").data; }

const std::vector<Value>& Value::as_sequence(const std::string& what) const {
  if (const auto* tuple = std::get_if<Tuple>(&data_)) return tuple->items;
  return get<List>(*this, what, "list or tuple").items;
}

std::vector<std::int64_t> Value::as_ints(const std::string& what) const {
  std::vector<std::int64_t> numbers;
  for (const Value& number : as_sequence(what)) numbers.push_back(number.as_int(what));
  return numbers;
}

const Value::Dict& Value::as_dict(const std::string& what) const { return get<Dict>(*this, what, "dict"); }

const char* Value::type_name() const {
  static constexpr std::array<const char*, std::variant_size_v<Variant>> kNames = {
      "None", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict"};
  return kNames[data_.index()];
}

const Value& value_at(const Values& values, const std::string& key) {
  const auto found = values.find(key);
  if (found == values.end()) throw CheckpointError("the checkpoint state has no " + key);
  return found->second;
}

}  // namespace titan
