#include "train/state_dict.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/dcp/ranks.h"
#include "distributed/tensor/dtensor.h"

namespace titan::train {
namespace {

// A tensor of the live state: this rank's part, and of what.
struct Live {
  std::string name;
  at::Tensor local;
  std::optional<dist::Sharding> sharding;

  std::vector<std::int64_t> shape(bool whole) const {
    return whole && sharding ? sharding->spec.global_shape : local.sizes().vec();
  }
};

std::vector<Live> live_model(nn::Module& model) {
  std::vector<Live> out;
  for (const auto& parameter : model.named_parameters()) {
    const auto& sharding = parameter.parameter->sharding;
    // dtensor() refuses a parameter that is gathered at the moment.
    out.push_back({parameter.fqn, sharding ? parameter.dtensor().to_local() : parameter.tensor().detach(), sharding});
  }
  return out;
}

std::vector<Live> live_optimizer(nn::Module& model, optim::AdamW& optimizer) {
  std::vector<Live> out;
  std::map<std::string, std::optional<dist::Sharding>> shardings;
  for (const auto& parameter : model.named_parameters()) shardings[parameter.fqn] = parameter.parameter->sharding;
  for (const auto& state : optimizer.states()) {
    const auto& sharding = shardings.at(state.fqn);
    out.push_back({"state." + state.fqn + ".exp_avg", state.exp_avg, sharding});
    out.push_back({"state." + state.fqn + ".exp_avg_sq", state.exp_avg_sq, sharding});
    out.push_back({"state." + state.fqn + ".step", state.step, std::nullopt});
  }
  return out;
}

StateDict get(const std::vector<Live>& all, const StateDictOptions& options, dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const bool keep = !(options.full_state_dict && options.cpu_offload) || group.rank() == 0;
  StateDict state;
  for (const Live& live : all) {
    at::Tensor value = live.local.detach();
    if (options.full_state_dict && live.sharding) value = dist::DTensor(value, *live.sharding).full_tensor();
    if (!keep) continue;
    // A copy also on the CPU, which the next step does not change.
    if (options.cpu_offload) value = value.to(at::kCPU, value.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    state.emplace_back(live.name, std::move(value));
  }
  return state;
}

// Everything that does not fit.
std::string find_faults(const std::vector<Live>& all, const std::map<std::string, at::Tensor>& given,
                        const StateDictOptions& options) {
  std::vector<std::string> missing, unexpected, wrong;
  std::set<std::string> names;
  for (const Live& live : all) {
    names.insert(live.name);
    const auto found = given.find(live.name);
    if (found == given.end()) {
      if (options.strict) missing.push_back(live.name);
    } else if (const auto shape = live.shape(options.full_state_dict);
               found->second.sizes() != at::IntArrayRef(shape)) {
      wrong.push_back(live.name + " is " + dist::shape_text(found->second.sizes()) + ", expected " +
                      dist::shape_text(shape));
    }
  }
  for (const auto& [name, tensor] : given) {
    if (options.strict && !names.contains(name)) unexpected.push_back(name);
  }
  std::string faults;
  if (!missing.empty()) faults += " Missing: " + join(missing, ", ") + ".";
  if (!unexpected.empty()) faults += " Unexpected: " + join(unexpected, ", ") + ".";
  if (!wrong.empty()) faults += " Other shapes: " + join(wrong, "; ") + ".";
  return faults;
}

void check(const std::vector<Live>& all, const std::map<std::string, at::Tensor>& given,
           const StateDictOptions& options, dist::ProcessGroup& group) {
  TITAN_CHECK(!options.broadcast_from_rank0 || options.full_state_dict, "broadcast_from_rank0 needs full_state_dict");
  checkpoint::GroupRanks ranks(group);
  const std::string action = "setting the state failed";
  const auto step = [&] {
    const std::string faults = find_faults(all, given, options);
    if (!faults.empty()) throw CheckpointError("the state does not fit." + faults);
    return std::string();
  };
  if (options.broadcast_from_rank0) {
    checkpoint::on_rank_0(ranks, action, step);
  } else {
    checkpoint::on_every_rank(ranks, action, step);
  }
}

// The whole tensor that rank 0 has, or nothing where it has none and need not.
at::Tensor receive(const Live& live, const std::map<std::string, at::Tensor>& given, dist::ProcessGroup& group) {
  const auto found = given.find(live.name);
  const bool sends = group.rank() == 0;
  const bool there = group.broadcast_bytes(sends && found != given.end() ? "1" : "0", 0) == "1";
  if (!there) return {};
  at::Tensor whole = sends ? found->second.detach().to(live.local.options()).contiguous()
                           : at::empty(live.shape(/*whole=*/true), live.local.options());
  group.broadcast(whole, 0).wait();
  return whole;
}

void set(const std::vector<Live>& all, const StateDict& state, const StateDictOptions& options,
         dist::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> given(state.begin(), state.end());
  check(all, given, options, group);
  for (const Live& live : all) {
    at::Tensor value;
    if (options.broadcast_from_rank0) {
      value = receive(live, given, group);
    } else if (const auto found = given.find(live.name); found != given.end()) {
      value = found->second.detach();
    }
    if (!value.defined()) continue;
    if (options.full_state_dict && live.sharding)
      value = dist::DTensor::distribute(value, live.sharding->mesh, live.sharding->placements).to_local();
    live.local.detach().copy_(value);
  }
}

}  // namespace

StateDict get_model_state_dict(nn::Module& model, const StateDictOptions& options, dist::ProcessGroup& group) {
  return get(live_model(model), options, group);
}

StateDict get_optimizer_state_dict(nn::Module& model, optim::AdamW& optimizer, const StateDictOptions& options,
                                   dist::ProcessGroup& group) {
  return get(live_optimizer(model, optimizer), options, group);
}

void set_model_state_dict(nn::Module& model, const StateDict& state, const StateDictOptions& options,
                          dist::ProcessGroup& group) {
  set(live_model(model), state, options, group);
}

void set_optimizer_state_dict(nn::Module& model, optim::AdamW& optimizer, const StateDict& state,
                              const StateDictOptions& options, dist::ProcessGroup& group) {
  set(live_optimizer(model, optimizer), state, options, group);
}

}  // namespace titan::train
