#include "checkpoint/format/dtype.h"

#include <array>

#include "base/error.h"

namespace titan::checkpoint {
namespace {

struct Entry {
  c10::ScalarType dtype;
  std::string_view name;
  std::string_view storage;
};

constexpr std::array<Entry, 10> kTypes = {{
    {c10::ScalarType::Float, "float32", "FloatStorage"},
    {c10::ScalarType::BFloat16, "bfloat16", "BFloat16Storage"},
    {c10::ScalarType::Half, "float16", "HalfStorage"},
    {c10::ScalarType::Double, "float64", "DoubleStorage"},
    {c10::ScalarType::Long, "int64", "LongStorage"},
    {c10::ScalarType::Int, "int32", "IntStorage"},
    {c10::ScalarType::Short, "int16", "ShortStorage"},
    {c10::ScalarType::Char, "int8", "CharStorage"},
    {c10::ScalarType::Byte, "uint8", "ByteStorage"},
    {c10::ScalarType::Bool, "bool", "BoolStorage"},
}};

const Entry& entry(c10::ScalarType dtype) {
  for (const Entry& type : kTypes)
    if (type.dtype == dtype) return type;
  throw CheckpointError(std::string("tensors of type ") + c10::toString(dtype) +
                        " cannot be stored in a checkpoint; convert them to a float or integer type of 8 to 64 bits");
}

}  // namespace

std::string dtype_name(c10::ScalarType dtype) { return std::string(entry(dtype).name); }

std::string storage_class(c10::ScalarType dtype) { return std::string(entry(dtype).storage); }

std::optional<c10::ScalarType> dtype_from_name(std::string_view name) {
  for (const Entry& type : kTypes)
    if (type.name == name) return type.dtype;
  return std::nullopt;
}

std::optional<c10::ScalarType> dtype_from_storage_class(std::string_view name) {
  for (const Entry& type : kTypes)
    if (type.storage == name) return type.dtype;
  return std::nullopt;
}

}  // namespace titan::checkpoint
