// What vendors and drivers say of GPUs, found by the names that drivers give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace titan {

struct DeviceFacts {
  std::string_view model;           // in capitals: "H100"
  std::int64_t memory_bytes = 0;    // that a driver reports for the device of one rank; 0: not known
  double half_precision_flops = 0;  // the vendor's dense peak in FLOP/s with sums in float32; 0: not known
  bool has_bfloat16 = true;         // computes in it at the speed of float16
};

// The facts of the device that `name` names in any case: "NVIDIA A100-SXM4-80GB", "h200". A model's name counts where
// no digit follows it: an H100SXM is an H100, an "RTX A1000" is not an A100. Nothing for a device that is not in the
// table.
std::optional<DeviceFacts> find_device_facts(std::string_view name);

// The models whose memory is known, each once, as they stand in the table.
std::vector<std::string_view> models_with_known_memory();

// The dense peak in FLOP/s that the vendor states for the named device and dtype ("bfloat16", "float16"). Nothing for a
// device or dtype whose peak is not known: a utilization against another device's peak would be misleading.
std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype);

}  // namespace titan
