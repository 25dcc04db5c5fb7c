// Gives parameters a weight decay and a learning rate of their own, by name: optimizer.no_decay and lr_factors.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"

namespace titan::optim {

// Rates of one parameter. Parameters with equal rates are a group.
struct ParameterRates {
  double lr_factor = 1;  // times the learning rate of the step
  double weight_decay = 0;
  bool operator==(const ParameterRates&) const = default;
};

// Returns the rates of each of `fqns`, which are all parameters of the model, in their order. Throws ConfigError that
// names the key, the entry and the nearest name, for a pattern that matches no parameter, or for a learning rate only
// parameters that an earlier pattern matches.
std::vector<ParameterRates> rates_of(const config::Optimizer& options, const std::vector<std::string>& fqns);

// Describes the groups, one line each: "3 parameters (norm.weight, ...): learning rate times 0.1, weight decay 0".
// Empty if there is one group with the factor 1.
std::vector<std::string> describe_groups(const std::vector<ParameterRates>& rates,
                                         const std::vector<std::string>& fqns);

}  // namespace titan::optim
