#include "models/common/lora/adapters.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "facts/adapter_names.h"
#include "models/common/convert/linear_layers.h"
#include "models/common/hub/peft_config.h"
#include "nn/lora_linear.h"

namespace titan::models {
namespace {

constexpr std::int64_t kTooLargeToBuild = 10'000;  // blocks; such a model is refused for its memory
constexpr std::string_view kWeight = ".weight", kPeftBegin = "base_model.model.";

// A linear layer that can have an adapter, with its names.
struct Layer : LinearPlace {
  std::string hub;  // "model.layers.3.self_attn.q_proj"
};

std::string without_end(std::string name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

// Returns the layers in module order.
std::vector<Layer> linear_layers(nn::Module& model, const ModelNaming& naming) {
  std::vector<Layer> layers;
  for (LinearPlace& place : linear_places(model)) {
    const auto hub = naming.to_hub(place.fqn + std::string(kWeight)).front().name;
    layers.push_back({std::move(place), without_end(hub, kWeight)});
  }
  return layers;
}

// True if `target` names the layer: a pattern of its whole name here or in Hugging Face's format, or the end of one of
// these names, "wq" or "q_proj", as in PEFT.
bool names(const std::string& target, const Layer& layer) {
  return matches_pattern(target, layer.fqn) || matches_pattern(target, layer.hub) ||
         layer.fqn.ends_with("." + target) || layer.hub.ends_with("." + target);
}

// Returns the names that a target could have meant, each with * for numbers.
std::vector<std::string> possible_targets(const std::vector<Layer>& layers) {
  std::vector<std::string> found;
  for (const Layer& layer : layers) {
    std::vector<std::string> parts;
    for (const std::string& part : split(layer.fqn, '.'))
      parts.push_back(part.find_first_not_of("0123456789") == std::string::npos ? "*" : part);
    const std::string pattern = join(parts, ".");
    if (std::ranges::count(found, pattern) == 0) found.push_back(pattern);
  }
  return found;
}

[[noreturn]] void fail_unmatched(const std::string& target, const std::vector<Layer>& layers) {
  const bool is_output = target == "output" || target == "lm_head";
  std::set<std::string> short_names;
  for (const Layer& layer : layers) short_names.insert(layer.hub.substr(layer.hub.rfind('.') + 1));
  const std::vector<std::string> known(short_names.begin(), short_names.end());
  throw ConfigError("lora.targets: \"" + target + "\" names no linear layer that can have an adapter" +
                        (is_output ? ": the output projection computes the loss, and has none" : "") + ". There are " +
                        join(possible_targets(layers), ", ") + "; or, by their names in " + "Hugging Face's format, " +
                        join(known, ", "),
                    {"lora.targets"});
}

// Returns the layers that the targets name.
std::vector<Layer> targeted(const std::vector<Layer>& layers, const std::vector<std::string>& targets) {
  for (const std::string& target : targets)
    if (std::ranges::none_of(layers, [&](const Layer& layer) { return names(target, layer); }))
      fail_unmatched(target, layers);
  std::vector<Layer> found;
  for (const Layer& layer : layers)
    if (std::ranges::any_of(targets, [&](const std::string& target) { return names(target, layer); }))
      found.push_back(layer);
  return found;
}

void add_adapters(nn::Module& model, const config::Lora& lora, const ModelNaming& naming) {
  for (const auto& parameter : model.named_parameters()) parameter.tensor().set_requires_grad(false);
  const nn::LoraOptions options{.rank = lora.rank, .scale = adapter_scale(lora), .dropout = lora.dropout};
  for (const Layer& layer : targeted(linear_layers(model, naming), lora.targets)) {
    const bool has_bias = layer.linear->bias.defined();
    auto adapted =
        std::make_shared<nn::LoraLinear>(layer.linear->weight.size(1), layer.linear->weight.size(0), has_bias, options);
    adapted->weight.set_requires_grad(false);
    if (has_bias) adapted->bias.set_requires_grad(false);
    layer.parent->replace_child(layer.child, std::move(adapted));
  }
}

// Returns PEFT's target_modules: the layers' last names if each stands for all layers that have it, else full names.
std::vector<std::string> target_modules(const std::vector<Layer>& all, const std::vector<Layer>& chosen) {
  std::map<std::string, std::int64_t> missing;  // last name -> layers that are not chosen
  const auto last = [](const Layer& layer) { return layer.hub.substr(layer.hub.rfind('.') + 1); };
  for (const Layer& layer : all) ++missing[last(layer)];
  for (const Layer& layer : chosen) --missing[last(layer)];
  std::vector<std::string> modules;
  for (const Layer& layer : chosen) {
    const std::string name = missing[last(layer)] == 0 ? last(layer) : layer.hub;
    if (std::ranges::count(modules, name) == 0) modules.push_back(name);
  }
  return modules;
}

std::int64_t num_adapter_parameters(const std::vector<Layer>& layers, std::int64_t rank) {
  std::int64_t count = 0;
  for (const Layer& layer : layers) count += rank * (layer.linear->weight.size(0) + layer.linear->weight.size(1));
  return count;
}

// Adds PEFT's names of adapters: "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight". The rows of B are
// those of the layer's weight, in its order.
void add_names(ModelNaming& naming) {
  naming.to_hub = [base = naming.to_hub](const std::string& fqn) -> std::vector<HubTensor> {
    if (!is_adapter_name(fqn)) return base(fqn);
    HubTensor hub = base(std::string(layer_of_adapter(fqn)) + std::string(kWeight)).front();
    const std::string kind = fqn.ends_with(kLoraB) ? kLoraB : kLoraA;
    hub.name = std::string(kPeftBegin) + without_end(hub.name, kWeight) + "." + kind + std::string(kWeight);
    if (kind == kLoraA) hub.rotary_heads = 0;
    return {hub};
  };
  naming.from_hub = [base = naming.from_hub](const std::string& name) -> std::optional<HubOrigin> {
    const std::string adapter = without_end(name, kWeight);
    if (!name.starts_with(kPeftBegin) || !is_adapter_name(adapter)) return base(name);
    const std::string layer(layer_of_adapter(adapter.substr(kPeftBegin.size())));
    const auto origin = base(layer + std::string(kWeight));
    if (!origin) return std::nullopt;
    return HubOrigin{without_end(origin->fqn, kWeight) + adapter.substr(adapter.rfind('.'))};
  };
}

}  // namespace

double adapter_scale(const config::Lora& lora) {
  const auto rank = static_cast<double>(lora.rank);
  return lora.alpha.value_or(rank) / rank;
}

TrainSpec with_adapters(TrainSpec spec, const config::Lora& lora, const std::optional<std::string>& base_model) {
  TITAN_CHECK(lora.rank >= 1, "adapters of rank " + std::to_string(lora.rank));
  spec.stats.num_frozen_parameters = spec.stats.num_parameters;
  PeftLora peft{.rank = lora.rank,
                .alpha = adapter_scale(lora) * static_cast<double>(lora.rank),
                .dropout = lora.dropout,
                .target_modules = {},
                .base_model = base_model};
  if (spec.stats.num_layers <= kTooLargeToBuild) {
    const auto model = spec.build_model(std::nullopt);
    const auto all = linear_layers(*model, spec.naming), chosen = targeted(all, lora.targets);
    spec.stats.num_parameters += num_adapter_parameters(chosen, lora.rank);
    peft.target_modules = target_modules(all, chosen);
  }
  spec.build_model = [build = spec.build_model, lora, naming = spec.naming](std::optional<std::int64_t> document_end) {
    auto model = build(document_end);
    add_adapters(*model, lora, naming);
    return model;
  };
  add_names(spec.naming);
  spec.naming.adapter_config = peft_config(peft);
  return spec;
}

}  // namespace titan::models
