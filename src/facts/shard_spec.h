// The box of a global tensor that a rank holds, in plain numbers: enough for checkpoints and initialization.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace titan::dist {

struct ShardSpec {
  std::vector<std::int64_t> global_shape;
  std::vector<std::int64_t> offset;  // of the local box in the global tensor, one per dim
  // May have a zero: an empty shard is normal (its offset is then the global size).
  std::vector<std::int64_t> local_shape;

  static ShardSpec replicated(std::vector<std::int64_t> shape) {
    std::vector<std::int64_t> zeros(shape.size(), 0);
    return {shape, std::move(zeros), shape};
  }
  bool operator==(const ShardSpec&) const = default;
};

// Returns "[256, 64]", for messages.
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

}  // namespace titan::dist
