// Finds the linear layers that a change of the model may replace.
#pragma once

#include <string>
#include <vector>

#include "nn/layers.h"

namespace titan::models {

// A linear layer with its names.
struct LinearPlace {
  nn::Module* parent;
  std::string child;  // its name within the parent
  nn::Linear* linear;
  std::string fqn;  // "layers.3.attention.wq"
};

// Returns the linear layers in module order. Classes that derive from Linear are left out: the output projection, which
// computes the loss, too, and layers that were replaced before.
std::vector<LinearPlace> linear_places(nn::Module& model);

}  // namespace titan::models
