#include "tests/support/null_cuda/nccl/nccl_sums.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace titan_null {
namespace {

struct BFloat16 {
  std::uint16_t bits;

  operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  // Rounds to the nearest number, ties to even; not a number stays one.
  static BFloat16 of(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    if (value != value) return {static_cast<std::uint16_t>(wide >> 16 | 0x40)};
    return {static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
};

// The type that holds sums on the way: integers wrap around as they do on a GPU.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double,
                                std::conditional_t<std::is_integral_v<T>, std::int64_t, float>>;

template <class T>
Wide<T> load(const char* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return static_cast<Wide<T>>(value);
}

template <class T>
void store(char* to, std::size_t index, Wide<T> value) {
  T narrow;
  if constexpr (std::is_same_v<T, BFloat16>)
    narrow = BFloat16::of(value);
  else
    narrow = static_cast<T>(value);
  std::memcpy(to + index * sizeof(T), &narrow, sizeof(T));
}

template <class W>
W join(ncclRedOp_t kind, W a, W b) {
  switch (kind) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

template <class T>
void reduce_as(const char* const* parts, int num_parts, std::size_t count, const Reduction& how, char* to) {
  const auto factor = static_cast<Wide<T>>(how.factor);
  const bool is_scaled = how.factor != 1 && !std::is_integral_v<T>;
  for (std::size_t i = 0; i < count; ++i) {
    Wide<T> total = load<T>(parts[0], i);
    if (is_scaled) total *= factor;
    for (int part = 1; part < num_parts; ++part) {
      const Wide<T> next = load<T>(parts[part], i);
      total = join(how.kind, total, is_scaled ? next * factor : next);
    }
    if (std::is_integral_v<T> && how.kind == ncclAvg) total /= num_parts;
    store<T>(to, i, total);
  }
}

// Calls function(T{}) with the C++ type of a type of NCCL. Numbers of eight bits with a point are only ever gathered.
template <class Function>
auto with_type(ncclDataType_t type, Function&& function) {
  switch (type) {
    case ncclInt8:
      return function(std::int8_t{});
    case ncclInt32:
      return function(std::int32_t{});
    case ncclUint32:
      return function(std::uint32_t{});
    case ncclInt64:
    case ncclUint64:
      return function(std::int64_t{});
    case ncclFloat16:
      return function(_Float16{});
    case ncclFloat32:
      return function(float{});
    case ncclFloat64:
      return function(double{});
    case ncclBfloat16:
      return function(BFloat16{});
    default:
      return function(std::uint8_t{});
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  return with_type(type, [](auto value) { return sizeof(value); });
}

double number_at(const void* address, ncclDataType_t type) {
  return with_type(type, [&](auto value) {
    return static_cast<double>(load<decltype(value)>(static_cast<const char*>(address), 0));
  });
}

void reduce(const char* const* parts, int num_parts, std::size_t count, ncclDataType_t type, const Reduction& how,
            char* to) {
  with_type(type, [&](auto value) { reduce_as<decltype(value)>(parts, num_parts, count, how, to); });
}

}  // namespace titan_null
