#include "train/dry_run/named_device.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/values/float8_keys.h"
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
    return device_of_model(text, facts->memory_bytes);
  std::vector<std::string> known;
  for (const auto model : models_with_known_memory()) known.emplace_back(model);
  throw ConfigError("command line: error: --device: no device \"" + text +
                    "\" is known; expected an amount of memory (80GiB) or one of " + join(known, ", "));
}

Device device_of_model(const std::string& name, std::int64_t bytes) {
  const auto facts = find_device_facts(name);
  return {name, bytes, !facts || facts->has_bfloat16, /*is_gpu=*/true, !facts || facts->has_float8};
}

void check_dtypes(const config::JobConfig& config, const Device& device) {
  const auto refuse = [&](const std::string& key) {
    throw ConfigError(key + " = \"bfloat16\": " + device.name + " does not compute in bfloat16; use float16 or float32",
                      {key});
  };
  if (!device.has_bfloat16 && config.training.dtype == "bfloat16") refuse("training.dtype");
  if (!device.has_bfloat16 && config.training.mixed_precision_param == "bfloat16")
    refuse("training.mixed_precision_param");
  const bool has_float8 = device.is_gpu && device.has_float8;
  if (config::uses_float8(config) && !has_float8 && !config.quantize.linear.float8.emulate)
    throw ConfigError(
        "model.converters asks for float8, whose matmuls need a GPU of compute capability 8.9 or later, and " +
            (device.is_gpu ? device.name + " is older" : "this run is on CPU") +
            "; leave float8 out, or, to see its losses, set quantize.linear.float8.emulate = true, which multiplies in "
            "float32",
        {"model.converters", "quantize.linear.float8.emulate"});
}

}  // namespace titan::train
