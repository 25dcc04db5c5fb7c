#include "metrics/flops.h"

#include <cctype>
#include <string>

namespace titan::metrics {
namespace {

struct DevicePeak {
  std::string_view model;    // in the device's name, not followed by a letter or digit ("RTX A1000" is no A100)
  std::string_view variant;  // also in the name; may be empty
  double flops;
};

// Vendors' data sheets, half precision without sparsity. The first match counts.
constexpr DevicePeak kPeaks[] = {
    {"A100", "", 312e12},   {"H100", "NVL", 835e12}, {"H100", "PCIE", 756e12}, {"H100", "", 989e12},
    {"H200", "", 989e12},   {"H20", "", 148e12},     {"B200", "", 2.25e15},    {"MI355X", "", 2.5e15},
    {"MI300X", "", 1.3e15}, {"MI325X", "", 1.3e15},  {"MI250X", "", 191.5e12}, {"L40S", "", 362e12},
};

std::string upper(std::string_view text) {
  std::string out;
  for (const char c : text) out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

bool names_model(std::string_view name, std::string_view model) {
  for (auto at = name.find(model); at != std::string_view::npos; at = name.find(model, at + 1)) {
    const auto end = at + model.size();
    if (end == name.size() || !std::isalnum(static_cast<unsigned char>(name[end]))) return true;
  }
  return false;
}

}  // namespace

std::int64_t flops_per_token(const ModelStats& stats, std::int64_t seq_len) {
  return 6 * (stats.num_parameters - stats.num_embedding_parameters) +
         6 * stats.num_layers * stats.num_heads * (2 * stats.head_dim) * seq_len;
}

std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype) {
  if (dtype != "bfloat16" && dtype != "float16") return std::nullopt;
  const std::string name = upper(device_name);
  for (const auto& peak : kPeaks) {
    if (names_model(name, peak.model) && name.find(peak.variant) != std::string::npos) return peak.flops;
  }
  return std::nullopt;
}

}  // namespace titan::metrics
