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
  items.push_back(ValueItem{fqn, group_path(fqn), std::move(value), optional});
}

const Value& get(const Values& values, const std::string& fqn) {
  const auto found = values.find(fqn);
  if (found == values.end()) throw CheckpointError("the checkpoint state has no " + fqn);
  return found->second;
}

const Value& get(const Value::Dict& dict, const std::string& key, const std::string& what) {
  if (const Value* value = dict.find(key)) return *value;
  throw CheckpointError(what + " has no entry " + key);
}

double only_number(const Value& value, const std::string& what) {
  const auto& numbers = value.as_sequence(what);
  if (numbers.size() != 1)
    throw CheckpointError(what + " has " + std::to_string(numbers.size()) +
                          " entries, expected 1: one learning rate for all parameters");
  return numbers[0].as_double(what);
}

std::string dp_rank_key(int dp_rank) { return "dataloader.dp_rank_" + std::to_string(dp_rank); }

std::string lane_key(std::int64_t lane) { return "dataloader.titan.lane_" + std::to_string(lane); }

Value int_list(const std::vector<std::int64_t>& numbers) {
  return Value::list(std::vector<Value>(numbers.begin(), numbers.end()));
}

std::vector<std::int64_t> as_ints(const Value& value, const std::string& what) {
  std::vector<std::int64_t> numbers;
  for (const Value& number : value.as_sequence(what)) numbers.push_back(number.as_int(what));
  return numbers;
}

std::string rng_key(int rank) { return "titan.rng.rank_" + std::to_string(rank); }

}  // namespace

StatePath group_path(const std::string& fqn) {
  const auto dot = fqn.find('.');
  if (dot == std::string::npos) return {fqn};
  return {fqn.substr(0, dot), fqn.substr(dot + 1)};
}

TensorItem optimizer_tensor(const std::string& parameter, const std::string& name, at::Tensor local,
                            dist::ShardSpec spec, bool sharded) {
  const std::string fqn = "optimizer.state." + parameter + "." + name;
  return {fqn, group_path(fqn), std::move(local), std::move(spec), sharded};
}

void append_param_group(std::vector<Item>& items, const std::string& parameter, const AdamWGroup& group) {
  const std::string prefix = "optimizer.param_groups." + parameter + ".";
  append(items, prefix + "lr", group.lr);
  append(items, prefix + "betas", Value::tuple({group.beta1, group.beta2}));
  append(items, prefix + "eps", group.eps);
  append(items, prefix + "weight_decay", group.weight_decay);
  append(items, prefix + "amsgrad", false);
  append(items, prefix + "maximize", false);
  append(items, prefix + "foreach", group.foreach);
  append(items, prefix + "capturable", false);
  append(items, prefix + "differentiable", false);
  append(items, prefix + "fused", group.fused);
  append(items, prefix + "decoupled_weight_decay", true);
  append(items, prefix + "initial_lr", group.initial_lr);
}

AdamWGroup parse_param_group(const Values& values, const std::string& parameter) {
  const std::string prefix = "optimizer.param_groups." + parameter + ".";
  const auto number = [&](const char* name) { return get(values, prefix + name).as_double(prefix + name); };
  // foreach and fused may be None, which is PyTorch's "choose for me".
  const auto flag = [&](const char* name) {
    const Value& value = get(values, prefix + name);
    return !value.is_none() && value.as_bool(prefix + name);
  };
  for (const char* name : {"amsgrad", "maximize"}) {
    if (flag(name)) throw CheckpointError(prefix + name + " is True; this AdamW has no such mode");
  }
  const auto& betas = get(values, prefix + "betas").as_sequence(prefix + "betas");
  if (betas.size() != 2)
    throw CheckpointError(prefix + "betas has " + std::to_string(betas.size()) + " entries, expected 2");
  return {number("lr"),
          betas[0].as_double(prefix + "betas"),
          betas[1].as_double(prefix + "betas"),
          number("eps"),
          number("weight_decay"),
          flag("foreach"),
          flag("fused"),
          number("initial_lr")};
}

void append_lr_scheduler(std::vector<Item>& items, const LrSchedulerState& state) {
  append(items, "lr_scheduler.base_lrs", Value::list({state.base_lr}));
  append(items, "lr_scheduler.last_epoch", state.steps_done);
  append(items, "lr_scheduler._step_count", state.steps_done + 1);
  append(items, "lr_scheduler._is_initial", false);
  append(items, "lr_scheduler._get_lr_called_within_step", false);
  append(items, "lr_scheduler._last_lr", Value::list({state.last_lr}));
}

LrSchedulerState parse_lr_scheduler(const Values& values) {
  return {only_number(get(values, "lr_scheduler.base_lrs"), "lr_scheduler.base_lrs"),
          get(values, "lr_scheduler.last_epoch").as_int("lr_scheduler.last_epoch"),
          only_number(get(values, "lr_scheduler._last_lr"), "lr_scheduler._last_lr")};
}

void append_train_state(std::vector<Item>& items, const TrainProgress& progress) {
  append(items, kStepKey, progress.step);
  append(items, "train_state.ntokens_seen", progress.ntokens_seen);
}

TrainProgress parse_train_state(const Values& values) {
  return {get(values, kStepKey).as_int(kStepKey),
          get(values, "train_state.ntokens_seen").as_int("train_state.ntokens_seen")};
}

void append_grad_scaler(std::vector<Item>& items, const GradScalerState& state) {
  append(items, "grad_scaler.scale", state.scale, /*optional=*/true);
  append(items, "grad_scaler._growth_tracker", state.growth_tracker, /*optional=*/true);
}

std::optional<GradScalerState> parse_grad_scaler(const Values& values) {
  if (!values.contains("grad_scaler.scale")) return std::nullopt;
  return GradScalerState{get(values, "grad_scaler.scale").as_double("grad_scaler.scale"),
                         get(values, "grad_scaler._growth_tracker").as_int("grad_scaler._growth_tracker")};
}

void append_dataloader(std::vector<Item>& items, int dp_rank, int dp_size, const DataLoaderState& state,
                       std::int64_t batch_size) {
  std::vector<Value> tokens(state.token_buffer.begin(), state.token_buffer.end());
  // The state of torchdata's StatefulDataLoader without workers, entry by entry: it reads all of them.
  const Value inner = Value::dict({
      {"_index_sampler_state", Value()},
      {"_sampler_iter_state", Value::dict({{"samples_yielded", state.num_batches * batch_size}})},
      {"_sampler_iter_yielded", state.num_batches},
      {"_num_yielded", state.num_batches},
      {"_IterableDataset_len_called", Value()},
      {"_shared_seed", Value()},
      {"fetcher_state", Value::dict({{"dataset_iter_state", Value()}, {"fetcher_ended", false}})},
      {"dataset_state",
       Value::dict({{"token_buffer", Value::list(std::move(tokens))}, {"sample_idx", state.sample_idx}})},
      {"_iterator_finished", false},
  });
  append(items, dp_rank_key(dp_rank), Value::bytes(pickle_value(inner, 4)));
  append(items, kDataRanksKey, dp_size);
}

DataLoaderState parse_dataloader(const Values& values, int dp_rank) {
  const std::string key = dp_rank_key(dp_rank);
  const Value inner = unpickle_value(get(values, key).as_bytes(key), key);
  const Value::Dict& state = inner.as_dict(key);
  if (state.find("_snapshot") != nullptr)
    throw CheckpointError(key +
                          " was saved by a data loader with worker processes; such a position cannot be continued. Set "
                          "checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data");
  const Value::Dict& dataset = get(state, "dataset_state", key).as_dict(key + " dataset_state");
  DataLoaderState result;
  result.num_batches = get(state, "_num_yielded", key).as_int(key + " _num_yielded");
  result.sample_idx = get(dataset, "sample_idx", key + " dataset_state").as_int(key + " sample_idx");
  for (const Value& token : get(dataset, "token_buffer", key + " dataset_state").as_sequence(key + " token_buffer"))
    result.token_buffer.push_back(token.as_int(key + " token_buffer"));
  return result;
}

void append_elastic(std::vector<Item>& items, const ElasticState& state) {
  append(items, kDataOrderKey,
         Value::dict({{"seed", state.seed}, {"num_lanes", state.num_lanes}, {"num_items", int_list(state.num_items)}}),
         true);
  for (const LaneState& lane : state.lanes) {
    std::vector<std::int64_t> numbers = {lane.windows};
    numbers.insert(numbers.end(), lane.cursors.begin(), lane.cursors.end());
    append(items, lane_key(lane.lane), int_list(numbers), true);
  }
}

std::optional<ElasticState> parse_elastic(const Values& values, const ElasticState& wanted) {
  const auto saved = values.find(kDataOrderKey);
  if (saved == values.end()) return std::nullopt;
  const Value::Dict& order = saved->second.as_dict(kDataOrderKey);
  ElasticState state{get(order, "seed", kDataOrderKey).as_int(kDataOrderKey),
                     get(order, "num_lanes", kDataOrderKey).as_int(kDataOrderKey),
                     as_ints(get(order, "num_items", kDataOrderKey), kDataOrderKey),
                     {}};
  for (const LaneState& lane : wanted.lanes) {
    const std::string key = lane_key(lane.lane);
    const auto found = values.find(key);
    if (found == values.end()) continue;
    const auto numbers = as_ints(found->second, key);
    if (numbers.empty()) throw CheckpointError(key + " is empty");
    state.lanes.push_back({lane.lane, numbers[0], {numbers.begin() + 1, numbers.end()}});
  }
  return state;
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
