#include "facts/device_facts.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/text.h"

namespace titan {
namespace {

struct Row {
  std::string_view model;        // in capitals
  std::string_view variants[2];  // must also be in the name without its blanks; "" always matches
  double gib;                    // 0 if not known
  double teraflops;              // in half precision; 0 if not known
  bool has_bfloat16 = true;
  bool has_float8 = false;
};

// The first matching row counts, so a model's variants come before it, the most specific first.
//
// Memory is the value that drivers report, the smallest if they differ: a vendor's "80 GB" is 80 GiB minus the memory
// that the driver and error correction keep. For a card with two devices it is the memory of one. A GH200's "480 GB"
// are its processor's.
//
// Peaks are from vendors' data sheets, without sparsity. GeForce cards have none here, because slower chips for laptops
// and for single markets share their names. Devices before NVIDIA's compute capability 8.0 and AMD's MI200 do not
// compute in bfloat16. Float8 matmuls need 8.9; AMD's, of another format, are not known here.
constexpr Row kRows[] = {
    {"GB200", {}, 184.3, 2500, true, true},
    {"B200", {}, 178.3, 2250, true, true},
    {"GH200", {"144G"}, 0, 989, true, true},
    {"GH200", {}, 94.5, 989, true, true},
    {"H200", {}, 139.7, 989, true, true},
    {"H100", {"NVL"}, 93.1, 835, true, true},
    {"H100", {"PCIE"}, 79.1, 756, true, true},
    {"H100", {"96GB"}, 95.0, 989, true, true},
    {"H100", {}, 79.1, 989, true, true},
    {"H20", {}, 95.0, 148, true, true},
    {"A100", {"40GB"}, 39.4, 312},
    {"A100", {}, 79.1, 312},
    {"A10G", {}, 22.0, 0},
    {"A10", {}, 22.0, 125},
    {"L40S", {}, 44.3, 362, true, true},
    {"L4", {}, 22.0, 121, true, true},
    {"T4", {}, 14.5, 65, false},
    {"V100", {"V100S"}, 31.7, 130, false},
    {"V100", {"PCIE", "16GB"}, 15.7, 112, false},
    {"V100", {"PCIE"}, 31.7, 112, false},
    {"V100", {"SXM2", "16GB"}, 15.7, 125, false},
    {"V100", {"SXM2"}, 31.7, 125, false},
    {"V100", {"16GB"}, 15.7, 0, false},
    {"V100", {}, 31.7, 0, false},
    {"P100", {}, 0, 0, false},
    {"P40", {}, 0, 0, false},
    {"4090", {}, 23.5, 0, true, true},
    {"5090", {}, 31.3, 0, true, true},
    {"MI50", {}, 0, 0, false},
    {"MI250X", {}, 63.9, 191.5},
    {"MI300X", {}, 191.6, 1300},
    {"MI325X", {}, 255.6, 1300},
    {"MI355X", {}, 287.9, 2500},
};

// True if the name is that of a slice of a device, as in "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
bool names_slice(std::string_view capitals) { return capitals.find(" MIG ") != std::string_view::npos; }

bool names_model(std::string_view name, std::string_view model) {
  for (auto at = name.find(model); at != std::string_view::npos; at = name.find(model, at + 1)) {
    const auto end = at + model.size();
    if (end == name.size() || !std::isdigit(static_cast<unsigned char>(name[end]))) return true;
  }
  return false;
}

}  // namespace

std::optional<DeviceFacts> find_device_facts(std::string_view name) {
  const std::string capitals = upper_case(name);
  std::string dense = capitals;
  std::erase(dense, ' ');
  const auto has = [&](std::string_view variant) { return dense.find(variant) != std::string::npos; };
  const auto* const row = std::ranges::find_if(kRows, [&](const Row& each) {
    return names_model(capitals, each.model) && std::ranges::all_of(each.variants, has);
  });
  if (row == std::end(kRows)) return std::nullopt;
  if (names_slice(capitals)) return DeviceFacts{row->model, 0, 0, row->has_bfloat16, row->has_float8};
  return DeviceFacts{row->model, static_cast<std::int64_t>(row->gib * 0x1p30), row->teraflops * 1e12, row->has_bfloat16,
                     row->has_float8};
}

std::vector<std::string_view> models_with_known_memory() {
  std::vector<std::string_view> models;
  for (const Row& row : kRows)
    if (row.gib > 0 && std::ranges::count(models, row.model) == 0) models.push_back(row.model);
  return models;
}

std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype) {
  if (dtype != "bfloat16" && dtype != "float16") return std::nullopt;
  const auto facts = find_device_facts(device_name);
  if (!facts || facts->half_precision_flops == 0) return std::nullopt;
  if (dtype == "bfloat16" && !facts->has_bfloat16) return std::nullopt;
  return facts->half_precision_flops;
}

}  // namespace titan
