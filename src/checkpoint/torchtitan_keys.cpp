#include "checkpoint/torchtitan_keys.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>

#include "base/error.h"
#include "checkpoint/format/value_pickle.h"

namespace titan::checkpoint {
namespace {

void append(std::vector<Item>& items, const std::string& fqn, Value value, bool optional = false) {
  items.push_back(value_item(fqn, std::move(value), optional));
}

double only_number(const Value& value, const std::string& what) {
  const auto& numbers = value.as_sequence(what);
  if (numbers.size() != 1)
    throw CheckpointError(what + " has " + std::to_string(numbers.size()) +
                          " entries, expected 1: one learning rate for all parameters");
  return numbers[0].as_double(what);
}

std::string rng_key(int rank) { return "titan.rng.rank_" + std::to_string(rank); }

}  // namespace

StatePath group_path(const std::string& fqn) {
  const auto dot = fqn.find('.');
  if (dot == std::string::npos) return {fqn};
  return {fqn.substr(0, dot), fqn.substr(dot + 1)};
}

ValueItem value_item(const std::string& fqn, Value value, bool optional) {
  return {fqn, group_path(fqn), std::move(value), optional};
}

Value pickled(const Value& value) { return Value::bytes(pickle_value(value, 4)); }

Value unpickled(const Value& stored, const std::string& what) { return unpickle_value(stored.as_bytes(what), what); }

TensorItem optimizer_tensor(const std::string& parameter, const std::string& name, at::Tensor local,
                            dist::ShardSpec spec, bool sharded) {
  const std::string fqn = "optimizer.state." + parameter + "." + name;
  return {fqn, group_path(fqn), std::move(local), std::move(spec), sharded};
}

std::string param_group_key(const std::string& parameter, const std::string& name) {
  return "optimizer.param_groups." + parameter + "." + name;
}

void append_param_group(std::vector<Item>& items, const std::string& parameter, double lr,
                        const std::vector<std::pair<std::string, Value>>& entries, double initial_lr) {
  append(items, param_group_key(parameter, "lr"), lr);
  for (const auto& [name, value] : entries) append(items, param_group_key(parameter, name), value);
  append(items, param_group_key(parameter, "initial_lr"), initial_lr);
}

void append_lr_scheduler(std::vector<Item>& items, const LrSchedulerState& state) {
  // TorchTitan's main branch saves last_epoch alone.
  append(items, "lr_scheduler.base_lrs", Value::list({state.base_lr}), /*optional=*/true);
  append(items, "lr_scheduler.last_epoch", state.steps_done);
  append(items, "lr_scheduler._step_count", state.steps_done + 1, /*optional=*/true);
  append(items, "lr_scheduler._is_initial", false, /*optional=*/true);
  append(items, "lr_scheduler._get_lr_called_within_step", false, /*optional=*/true);
  append(items, "lr_scheduler._last_lr", Value::list({state.last_lr}), /*optional=*/true);
}

LrSchedulerState parse_lr_scheduler(const Values& values) {
  return {only_number(value_at(values, "lr_scheduler.base_lrs"), "lr_scheduler.base_lrs"),
          value_at(values, "lr_scheduler.last_epoch").as_int("lr_scheduler.last_epoch"),
          only_number(value_at(values, "lr_scheduler._last_lr"), "lr_scheduler._last_lr")};
}

void append_train_state(std::vector<Item>& items, const TrainProgress& progress) {
  append(items, kStepKey, progress.step);
  append(items, "train_state.ntokens_seen", progress.ntokens_seen);
}

TrainProgress parse_train_state(const Values& values) {
  return {value_at(values, kStepKey).as_int(kStepKey),
          value_at(values, "train_state.ntokens_seen").as_int("train_state.ntokens_seen")};
}

void append_grad_scaler(std::vector<Item>& items, const GradScalerState& state) {
  append(items, "grad_scaler.scale", state.scale, /*optional=*/true);
  append(items, "grad_scaler._growth_tracker", state.growth_tracker, /*optional=*/true);
}

std::optional<GradScalerState> parse_grad_scaler(const Values& values) {
  if (!values.contains("grad_scaler.scale")) return std::nullopt;
  return GradScalerState{value_at(values, "grad_scaler.scale").as_double("grad_scaler.scale"),
                         value_at(values, "grad_scaler._growth_tracker").as_int("grad_scaler._growth_tracker")};
}

void append_rng(std::vector<Item>& items, int rank, int world_size) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  append(items, rng_key(rank),
         Value::bytes(std::string(static_cast<const char*>(state.const_data_ptr()), state.nbytes())), true);
  append(items, "titan.rng.world_size", world_size, true);
}

bool restore_rng(const Values& values, int rank, int world_size) {
  const auto saved = values.find(rng_key(rank));
  const auto saved_world = values.find("titan.rng.world_size");
  if (saved == values.end() || saved_world == values.end()) return false;
  if (saved_world->second.as_int("titan.rng.world_size") != world_size) return false;
  const std::string& bytes = saved->second.as_bytes(rng_key(rank));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  if (bytes.size() != state.nbytes())
    throw CheckpointError(rng_key(rank) + " has " + std::to_string(bytes.size()) + " bytes, a CPU generator has " +
                          std::to_string(state.nbytes()));
  std::memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  generator.set_state(state);
  return true;
}

}  // namespace titan::checkpoint
