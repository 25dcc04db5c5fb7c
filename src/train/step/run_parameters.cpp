#include "train/step/run_parameters.h"

#include <map>

#include "optim/param_groups.h"

namespace titan::train {

RunParameters::RunParameters(nn::Module& model) {
  std::map<const nn::Parameter*, std::size_t> by_first_slot;
  std::vector<std::pair<std::string, std::size_t>> order;
  for (const auto& named : model.named_parameters(/*remove_duplicate=*/false)) {
    const auto [found, is_new] = by_first_slot.emplace(&named.parameter->first_slot(), list_.size());
    if (is_new) {
      list_.push_back({named.fqn, {}, named.spec().global_shape, named.tensor().requires_grad(), named});
    } else {
      list_[found->second].other_names.push_back(named.fqn);
    }
    order.emplace_back(named.fqn, found->second);
  }
  for (const auto& [fqn, index] : order) stored_.emplace_back(fqn, &list_[index]);
}

std::vector<optim::TrainedParameter> RunParameters::to_train() const {
  std::vector<optim::TrainedParameter> out;
  for (const auto& each : list_)
    if (each.is_trained && each.local) out.push_back({each.fqn, each.local->tensor(), each.local->parameter->sharding});
  return out;
}

std::int64_t RunParameters::local_numel() const {
  std::int64_t numel = 0;
  for (const auto& each : list_) numel += each.local ? each.local->tensor().numel() : 0;
  return numel;
}

std::vector<std::string> group_lines(const config::Optimizer& options, const RunParameters& parameters) {
  std::vector<std::string> fqns;
  for (const auto& each : parameters)
    if (each.is_trained) fqns.push_back(each.fqn);
  return optim::describe_groups(optim::rates_of(options, fqns), fqns);
}

}  // namespace titan::train
