#include "models/common/convert/linear_layers.h"

#include <typeinfo>

namespace titan::models {

std::vector<LinearPlace> linear_places(nn::Module& model) {
  std::vector<LinearPlace> places;
  for (const auto& [fqn, module] : model.named_modules()) {
    for (const auto& [name, child] : module->children()) {
      auto* const linear = dynamic_cast<nn::Linear*>(child.get());
      if (!linear || typeid(*linear) != typeid(nn::Linear)) continue;
      places.push_back({module, name, linear, fqn.empty() ? name : fqn + "." + name});
    }
  }
  return places;
}

}  // namespace titan::models
