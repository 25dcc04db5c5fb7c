// Facts about GPUs from vendors and drivers, found by the name that the driver reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace titan {

struct DeviceFacts {
  std::string_view model;           // in capitals: "H100"
  std::int64_t memory_bytes = 0;    // reported by the driver for one rank's device; 0 if not known
  double half_precision_flops = 0;  // the vendor's dense peak in FLOP/s with sums in float32; 0 if not known
  bool has_bfloat16 = true;         // computes in bfloat16 at the speed of float16
  bool has_float8 = false;          // multiplies matrices of float8
};

// Returns the facts of the device that `name` names in any case: "NVIDIA A100-SXM4-80GB", "h200". A model's name
// matches only if no digit follows it: an H100SXM is an H100, an "RTX A1000" is not an A100. Memory and peak of a slice
// of a device (MIG) are not known. nullopt if the device is not in the table.
std::optional<DeviceFacts> find_device_facts(std::string_view name);

// Returns the models whose memory is known, each once, in the order of the table.
std::vector<std::string_view> models_with_known_memory();

// Returns the vendor's dense peak in FLOP/s for the named device and dtype ("bfloat16", "float16"). nullopt if it is
// not known: a utilization against another device's peak would be misleading.
std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype);

}  // namespace titan
