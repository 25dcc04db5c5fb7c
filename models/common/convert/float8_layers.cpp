#include "models/common/convert/float8_layers.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/values/float8_keys.h"
#include "models/common/convert/linear_layers.h"
#include "nn/float8/float8_linear.h"

namespace titan::models {
namespace {

constexpr std::int64_t kAlignment = 16;  // of both dimensions of a weight, for the GPU's matmuls

// Returns true if float8 is slower than 16 bits for this weight on an H100, by torchao's measurements
// (torchao/float8/float8_linear_utils.py, _auto_filter_for_recipe).
bool is_small(const at::Tensor& weight, nn::Float8Recipe recipe) {
  const auto out = weight.size(0), in = weight.size(1);
  if (recipe == nn::Float8Recipe::kTensorwise) return in <= 4096 && out <= 1024;
  return out <= 2048 || in <= 1024 || (out <= 4096 && in <= 2048);
}

bool converts(const std::string& fqn, const at::Tensor& weight, const config::Float8Linear& float8,
              nn::Float8Recipe recipe) {
  if (weight.size(0) % kAlignment != 0 || weight.size(1) % kAlignment != 0) return false;
  return std::ranges::none_of(float8.filter_fqns, [&](const std::string& filter) {
    return filter == config::kAutoFilter ? is_small(weight, recipe) : fqn.find(filter) != std::string::npos;
  });
}

nn::Float8Recipe recipe_of(const config::Float8Linear& float8) {
  const std::string name = float8.recipe_name.value_or("tensorwise");
  if (name == "rowwise") return nn::Float8Recipe::kRowwise;
  return name == "tensorwise" ? nn::Float8Recipe::kTensorwise : nn::Float8Recipe::kRowwiseWithGwHp;
}

}  // namespace

void use_float8(LanguageModel& model, const ParallelContext& context) {
  if (!config::uses_float8(context.job) || context.any_length) return;
  const config::Float8Linear& float8 = context.job.quantize.linear.float8;
  const nn::Float8Options options{.recipe = recipe_of(float8),
                                  .emulate = float8.emulate,
                                  .gathers_in_float8 = float8.enable_fsdp_float8_all_gather};
  const auto places = linear_places(model);
  std::size_t num_converted = 0;
  for (const LinearPlace& place : places) {
    const at::Tensor& weight = place.linear->weight;
    if (!converts(place.fqn, weight, float8, options.recipe)) continue;
    place.parent->replace_child(place.child, std::make_shared<nn::Float8Linear>(weight.size(1), weight.size(0),
                                                                                place.linear->bias.defined(), options));
    ++num_converted;
  }
  if (num_converted == 0)
    throw ConfigError("model.converters asks for float8, and no linear layer is left for it: " +
                          counted(static_cast<std::int64_t>(places.size()), "layer") +
                          ", and each is named by quantize.linear.float8.filter_fqns or has a dimension that is not "
                          "a multiple of 16; name fewer layers, or leave model.converters out",
                      {"model.converters", "quantize.linear.float8.filter_fqns"});
}

}  // namespace titan::models
