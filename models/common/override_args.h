// Helpers of flavors: [model].flavor by name, and the overrides of [model.args]. No torch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/job_config.h"
#include "config/keys/source.h"
#include "models/common/shapes.h"

namespace titan::models {

template <typename T, typename U>
void override_with(T& value, const std::optional<U>& replacement) {
  if (replacement) value = static_cast<T>(*replacement);
}

template <typename Shape>
std::vector<std::string> names_of(const std::map<std::string, Shape>& flavors) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : flavors) names.push_back(name);
  return names;
}

// Returns the flavor that [model] names, or any if model.from stands in its place: [model.args] then has all sizes.
// Throws ConfigError for an unknown one.
template <typename Shape>
const Shape& flavor_of(const config::Model& model, const std::map<std::string, Shape>& flavors) {
  if (model.from) return flavors.begin()->second;
  if (const auto found = flavors.find(model.flavor); found != flavors.end()) return found->second;
  const auto names = names_of(flavors);
  const auto nearest = nearest_name(model.flavor, names);
  throw ConfigError("model.flavor = \"" + model.flavor + "\" is not a flavor of " + model.name +
                        (nearest ? "; did you mean \"" + *nearest + "\"?" : ".") + " Flavors: " + join(names, ", ") +
                        ". Other sizes: take one and set [model.args]",
                    {"model.flavor"});
}

// Replaces the sizes that every decoder has.
void override_decoder(DecoderShape& shape, const config::ModelArgs& args);

// Makes heads dim / n_heads wide, unless model.args.head_dim says otherwise. Throws ConfigError if the width is not
// even.
void divide_width(AttentionShape& attention, const config::ModelArgs& args);

// Replaces values of the scaling of rotary frequencies. A factor of 1 turns it off.
void override_rope_scaling(std::optional<RopeScaling>& scaling, const config::RopeScalingArgs& args);

// Appends a fault for each key of [model.args] that is set, that not every decoder has and that is not in `own`
// ("multiple_of").
void refuse_other_args(const config::JobConfig& config, const std::set<std::string>& own,
                       std::vector<config::Fault>& errors);

}  // namespace titan::models
