#include "config/keys/values/float8_keys.h"

#include <algorithm>
#include <string>

namespace titan::config {
namespace {

bool is_float8(const std::string& converter) { return converter == "float8" || converter == "quantize.linear.float8"; }

// True if a name of filter_fqns is part of the output projection's name.
bool leaves_output_alone(const Float8Linear& float8) {
  return std::ranges::any_of(float8.filter_fqns, [](const std::string& filter) {
    return std::string_view("output").find(filter) != std::string_view::npos;
  });
}

}  // namespace

bool uses_float8(const JobConfig& config) { return std::ranges::any_of(config.model.converters, is_float8); }

std::vector<Fault> find_wrong_converters(const JobConfig& config) {
  std::vector<Fault> faults;
  for (const std::string& converter : config.model.converters)
    if (!is_float8(converter))
      faults.push_back({"model.converters: \"" + converter +
                            "\" is not built; expected [\"quantize.linear.float8\"], which computes the matmuls of "
                            "linear layers in float8, or an empty list",
                        {"model.converters"}});
  if (!uses_float8(config)) return faults;
  const Float8Linear& float8 = config.quantize.linear.float8;
  if (!leaves_output_alone(float8))
    faults.push_back(
        {"quantize.linear.float8.filter_fqns must name the output projection, which computes the loss "
         "with its logits and is not converted; add \"output\"",
         {"quantize.linear.float8.filter_fqns", "model.converters"}});
  if (float8.recipe_name == "rowwise_with_gw_hp" && std::ranges::count(float8.filter_fqns, kAutoFilter) > 0)
    faults.push_back({"quantize.linear.float8.filter_fqns: \"" + std::string(kAutoFilter) +
                          "\" has no sizes for recipe_name = \"rowwise_with_gw_hp\"; name the layers, or choose "
                          "\"tensorwise\" or \"rowwise\"",
                      {"quantize.linear.float8.filter_fqns", "quantize.linear.float8.recipe_name"}});
  if (float8.enable_fsdp_float8_all_gather && float8.recipe_name.value_or("tensorwise") != "tensorwise")
    faults.push_back(
        {"quantize.linear.float8.enable_fsdp_float8_all_gather = true needs one scale for each weight, and "
         "recipe_name = \"" +
             *float8.recipe_name + "\" has one for each row; set recipe_name = \"tensorwise\", or gather in 16 bits",
         {"quantize.linear.float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.recipe_name"}});
  if (config.lora.rank > 0)
    faults.push_back({"model.converters: adapters have no float8 products; set lora.rank = 0, or leave float8 out",
                      {"model.converters", "lora.rank"}});
  return faults;
}

std::vector<std::string> warnings_of_converters(const JobConfig& config) {
  if (!uses_float8(config)) return {};
  std::vector<std::string> warnings;
  const Parallelism& p = config.parallelism;
  if (p.tensor_parallel_degree > 1 && p.enable_async_tensor_parallel)
    warnings.emplace_back(
        "parallelism.enable_async_tensor_parallel has no effect with float8: its matmuls are not split into the parts "
        "that would overlap with collectives");
  const Float8Linear& float8 = config.quantize.linear.float8;
  if (float8.precompute_float8_dynamic_scale_for_fsdp && !float8.enable_fsdp_float8_all_gather)
    warnings.emplace_back(
        "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp has no effect without "
        "enable_fsdp_float8_all_gather = true");
  return warnings;
}

}  // namespace titan::config
