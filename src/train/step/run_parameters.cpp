#include "train/step/run_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "optim/param_groups.h"

namespace titan::train {

std::vector<ParameterSlot> slots_of(nn::Module& model) {
  std::map<const nn::Parameter*, std::size_t> by_first_slot;
  std::vector<ParameterSlot> slots;
  for (const auto& named : model.named_parameters(/*remove_duplicate=*/false)) {
    const auto found = by_first_slot.emplace(&named.parameter->first_slot(), slots.size()).first;
    slots.push_back({named.fqn, found->second, named.spec().global_shape, named.tensor().requires_grad()});
  }
  return slots;
}

RunParameters::RunParameters(nn::Module& model, const std::vector<ParameterSlot>& whole, const StoredDtypes& dtypes) {
  std::map<std::string, nn::NamedParameter> own;
  for (const auto& named : model.named_parameters(/*remove_duplicate=*/false)) own.emplace(named.fqn, named);
  std::map<std::size_t, std::size_t> index_of_first;
  std::vector<std::pair<std::string, std::size_t>> order;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const ParameterSlot& slot = whole[i];
    const auto [found, is_new] = index_of_first.emplace(slot.first, list_.size());
    if (is_new) {
      list_.push_back(
          {slot.fqn, {}, slot.shape, slot.is_trained, slot.is_trained ? dtypes.trained : dtypes.frozen, {}});
    } else {
      list_[found->second].other_names.push_back(slot.fqn);
    }
    const auto mine = own.find(slot.fqn);
    if (RunParameter& parameter = list_[found->second]; mine != own.end() && !parameter.local) {
      parameter.local = mine->second;
      parameter.dtype = mine->second.tensor().scalar_type();
    }
    order.emplace_back(slot.fqn, found->second);
  }
  for (const auto& [fqn, index] : order) stored_.emplace_back(fqn, &list_[index]);
}

std::vector<optim::TrainedParameter> RunParameters::to_train() const {
  std::vector<optim::TrainedParameter> out;
  for (const auto& each : list_)
    if (each.is_trained && each.local) out.push_back({each.fqn, each.local->tensor(), each.local->parameter->sharding});
  return out;
}

at::Tensor RunParameters::owned(at::Device device) const {
  std::vector<float> owned;
  for (const auto& each : list_)
    if (each.is_trained && each.local) owned.push_back(each.is_copy() ? 0.0F : 1.0F);
  if (std::ranges::count(owned, 0.0F) == 0) return {};
  return at::tensor(owned).to(device);
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
