#include "train/dry_run/named_device.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace titan::train {
namespace {

struct Model {
  const char* name;     // in capitals
  const char* variant;  // also in the name; may be empty
  double gib;           // of what one rank uses: of a card with two devices, one of them
};

// What drivers report, where it differs between them the least: vendors' "80 GB" is 80 GiB less what the driver and
// error correction keep. The first match counts, so the smaller of two variants is last only where the name tells.
constexpr Model kModels[] = {
    {"B200", "", 178.3},   {"H200", "", 139.7},    {"H100", "NVL", 93.1}, {"H100", "96GB", 95.0}, {"H100", "", 79.1},
    {"H20", "", 95.0},     {"A100", "40GB", 39.4}, {"A100", "", 79.1},    {"A10G", "", 22.0},     {"A10", "", 22.0},
    {"L40S", "", 44.3},    {"L4", "", 22.0},       {"T4", "", 14.5},      {"V100", "16GB", 15.7}, {"V100", "", 31.7},
    {"4090", "", 23.5},    {"5090", "", 31.3},     {"MI250X", "", 63.9},  {"MI300X", "", 191.6},  {"MI325X", "", 255.6},
    {"MI355X", "", 287.9},
};

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {{"KIB", 0x1p10}, {"MIB", 0x1p20}, {"GIB", 0x1p30}, {"TIB", 0x1p40},
                           {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};

// Before compute capability 8.0, and AMD's before MI200.
constexpr const char* kWithoutBFloat16[] = {"V100", "T4", "P100", "P40", "MI50"};

std::string upper(const std::string& text) {
  std::string out;
  for (const char c : text) out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

// The model's name, and no digit after it: an A1000 is not an A100, an H100SXM is an H100.
bool names(const std::string& text, const std::string& model) {
  const auto at = text.find(model);
  if (at == std::string::npos) return false;
  const std::string rest = text.substr(at + model.size());
  return rest.empty() || !std::isdigit(static_cast<unsigned char>(rest[0]));
}

// 0 for what is no amount.
double parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  while (*end == ' ') ++end;
  if (end == text.c_str() || !std::isfinite(number) || number <= 0) return 0;
  for (const Unit& unit : kUnits)
    if (std::string(end) == unit.name && number * unit.bytes >= 1 && number * unit.bytes < 0x1p60)
      return number * unit.bytes;
  return 0;
}

}  // namespace

Device named_device(const std::string& text) {
  const std::string name = upper(text);
  if (const double bytes = parse_bytes(name); bytes > 0)
    return {"a device of " + text, static_cast<std::int64_t>(bytes)};
  std::string known;
  for (const Model& model : kModels) {
    if (names(name, model.name) && without_blanks(name).find(model.variant) != std::string::npos)
      return {text, static_cast<std::int64_t>(model.gib * 0x1p30), has_bfloat16(text)};
    if (*model.variant == '\0') known += std::string(known.empty() ? "" : ", ") + model.name;
  }
  throw ConfigError("command line: error: --device: no device \"" + text +
                    "\" is known; expected an amount of memory (80GiB) or one of " + known);
}

bool has_bfloat16(const std::string& device_name) {
  const std::string name = upper(device_name);
  return std::ranges::none_of(kWithoutBFloat16, [&](const char* model) { return names(name, model); });
}

void check_dtypes(const config::JobConfig& config, const Device& device) {
  if (device.has_bfloat16) return;
  const auto refuse = [&](const std::string& key) {
    throw ConfigError("error: " + key + " = \"bfloat16\": " + device.name +
                      " does not compute in bfloat16; use float16 or float32");
  };
  if (config.training.dtype == "bfloat16") refuse("training.dtype");
  if (config.training.mixed_precision_param == "bfloat16") refuse("training.mixed_precision_param");
}

}  // namespace titan::train
