// Helpers of flavors: [model].flavor by name, and the overrides of [model.args]. No torch.
#pragma once

#include <map>
#include <optional>
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

// Returns the flavor that [model] names. Throws ConfigError for an unknown one.
template <typename Shape>
const Shape& flavor_of(const config::Model& model, const std::map<std::string, Shape>& flavors) {
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

// A key of [model.args] that a model does not have: "multiple_of".
struct UnusedArg {
  const char* key;
  bool is_set;
  const char* reason;  // "heads are dim / n_heads wide"
};

// Appends a fault for each of the keys that is set.
void refuse_args(const std::string& model, const std::vector<UnusedArg>& args, std::vector<config::Fault>& errors);

}  // namespace titan::models
