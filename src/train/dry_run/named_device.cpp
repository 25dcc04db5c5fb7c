#include "train/dry_run/named_device.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "facts/device_facts.h"

namespace titan::train {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {{"KIB", 0x1p10}, {"MIB", 0x1p20}, {"GIB", 0x1p30}, {"TIB", 0x1p40},
                           {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};

// 0 for a text that is not an amount.
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
  const std::string name = upper_case(text);
  if (const double bytes = parse_bytes(name); bytes > 0)
    return {"a device of " + text, static_cast<std::int64_t>(bytes)};
  if (const auto facts = find_device_facts(text); facts && facts->memory_bytes > 0)
    return {text, facts->memory_bytes, facts->has_bfloat16};
  std::vector<std::string> known;
  for (const auto model : models_with_known_memory()) known.emplace_back(model);
  throw ConfigError("command line: error: --device: no device \"" + text +
                    "\" is known; expected an amount of memory (80GiB) or one of " + join(known, ", "));
}

bool has_bfloat16(const std::string& device_name) {
  const auto facts = find_device_facts(device_name);
  return !facts || facts->has_bfloat16;
}

void check_dtypes(const config::JobConfig& config, const Device& device) {
  if (device.has_bfloat16) return;
  const auto refuse = [&](const std::string& key) {
    throw ConfigError(key + " = \"bfloat16\": " + device.name + " does not compute in bfloat16; use float16 or float32",
                      {key});
  };
  if (config.training.dtype == "bfloat16") refuse("training.dtype");
  if (config.training.mixed_precision_param == "bfloat16") refuse("training.mixed_precision_param");
}

}  // namespace titan::train
