#include "train/train_state.h"

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/torchtitan_keys.h"

namespace titan::train {
namespace {

void warn_if_changed(const char* key, double saved, double configured) {
  if (saved != configured && speaks_for_all())
    spdlog::warn("{} is {} in the checkpoint and {} in the configuration: going on with {}", key, saved, configured,
                 configured);
}

// A load does not miss it.
checkpoint::ValueItem value_item(const char* key, Value value = {}) {
  return {key, checkpoint::group_path(key), std::move(value), true};
}

checkpoint::ElasticState to_state(const ElasticPosition& position) {
  checkpoint::ElasticState state{position.seed, position.num_lanes, position.num_items, {}};
  for (const auto& lane : position.lanes) state.lanes.push_back({lane.lane, lane.windows, lane.cursors});
  return state;
}

}  // namespace

std::vector<checkpoint::Item> TrainState::items(bool model_only) {
  std::vector<checkpoint::Item> items;
  const auto parameters = parts_.model->named_parameters();
  for (const auto& parameter : parameters) {
    items.push_back(checkpoint::TensorItem{parameter.fqn,
                                           {parameter.fqn},
                                           parameter.tensor().detach(),
                                           parameter.spec(),
                                           parameter.parameter->sharding.has_value()});
  }
  if (model_only) return items;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    append_optimizer(items, parameters[i], parts_.optimizer->states()[i]);
  const double next_lr = parts_.base_lr * parts_.schedule->factor(step);
  checkpoint::append_lr_scheduler(items, {parts_.base_lr, step, next_lr});
  checkpoint::append_train_state(items, {step, parts_.metrics->tokens_seen()});
  if (parts_.grad_scaler) {
    const auto scaler = parts_.grad_scaler->state();
    checkpoint::append_grad_scaler(items, {scaler.scale, scaler.growth_tracker});
  }
  append_data(items);
  checkpoint::append_rng(items, parts_.rank, parts_.world_size);
  items.push_back(value_item(checkpoint::kRunKey, parts_.record->value()));
  return items;
}

std::vector<checkpoint::Item> TrainState::probes() {
  return {value_item(checkpoint::kDataRanksKey), value_item(checkpoint::kDataOrderKey),
          value_item(checkpoint::kRunKey)};
}

void TrainState::check_fits(const checkpoint::Values& saved) {
  check_data_order(saved);
  if (const auto run = saved.find(checkpoint::kRunKey); run != saved.end()) {
    parts_.record->check(run->second);
  } else {
    spdlog::info("the checkpoint does not say with which configuration it was saved: nothing to compare with this one");
  }
}

void TrainState::check_data_order(const checkpoint::Values& saved) const {
  const auto order = saved.find(checkpoint::kDataOrderKey), ranks = saved.find(checkpoint::kDataRanksKey);
  if (order == saved.end() && ranks == saved.end()) return;  // excluded
  const std::string restart =
      ", or set checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data from the beginning";
  const bool elastic = parts_.data->position().elastic.has_value();
  if ((order != saved.end()) != elastic) {
    const auto name = [](bool is_elastic) { return is_elastic ? "elastic" : "torchtitan"; };
    throw CheckpointError(
        std::string("the dataloader state is not one of the order in which this run reads its data; ") +
        "set training.data_order = \"" + name(!elastic) + "\"" + restart);
  }
  if (elastic) return;
  const auto then = ranks->second.as_int(checkpoint::kDataRanksKey);
  const auto now = parts_.batch_mesh->size();
  if (then != now)
    throw CheckpointError("the dataloader state was saved at " + std::to_string(then) +
                          " data-parallel ranks, this run has " + std::to_string(now) + "; run at " +
                          std::to_string(then) + restart);
}

void TrainState::append_optimizer(std::vector<checkpoint::Item>& items, const nn::NamedParameter& parameter,
                                  const optim::AdamWState& state) {
  const bool sharded = parameter.parameter->sharding.has_value();
  items.push_back(checkpoint::optimizer_tensor(state.fqn, "step", state.step, dist::ShardSpec::replicated({}), false));
  items.push_back(checkpoint::optimizer_tensor(state.fqn, "exp_avg", state.exp_avg, parameter.spec(), sharded));
  items.push_back(checkpoint::optimizer_tensor(state.fqn, "exp_avg_sq", state.exp_avg_sq, parameter.spec(), sharded));
  const auto& options = parts_.optimizer->options();
  checkpoint::AdamWGroup group;
  group.lr = parts_.base_lr * parts_.schedule->factor(step);
  group.beta1 = options.beta1;
  group.beta2 = options.beta2;
  group.eps = options.eps;
  group.weight_decay = options.weight_decay;
  group.initial_lr = parts_.base_lr;
  checkpoint::append_param_group(items, state.fqn, group);
}

// What exclude_from_loading left out is not among the values.
void TrainState::restored(const checkpoint::Values& values, bool model_only) {
  if (model_only) return;
  if (values.contains(checkpoint::kStepKey)) {
    const auto progress = checkpoint::parse_train_state(values);
    step = progress.step;
    parts_.metrics->set_tokens_seen(progress.ntokens_seen);
  }
  restore_data(values);
  restore_grad_scaler(values);
  checkpoint::restore_rng(values, parts_.rank, parts_.world_size);
  restore_hyperparameters(values);
}

void TrainState::append_data(std::vector<checkpoint::Item>& items) const {
  const auto position = parts_.data->position();
  if (position.elastic) {
    checkpoint::append_elastic(items, to_state(*position.elastic));
  } else {
    checkpoint::append_dataloader(items, parts_.batch_mesh->local_rank("batch"), parts_.batch_mesh->size(),
                                  {position.num_batches, position.sample_idx, position.token_buffer},
                                  parts_.local_batch_size);
  }
}

void TrainState::restore_data(const checkpoint::Values& values) {
  if (const auto here = parts_.data->position().elastic) {
    const auto state = checkpoint::parse_elastic(values, to_state(*here));
    if (!state) return;
    DataPosition position;
    position.elastic = ElasticPosition{state->seed, state->num_lanes, state->num_items, {}};
    for (const auto& lane : state->lanes) position.elastic->lanes.push_back({lane.lane, lane.windows, lane.cursors});
    parts_.data->seek(position);
  } else if (values.contains(checkpoint::kDataRanksKey)) {
    const auto state = checkpoint::parse_dataloader(values, parts_.batch_mesh->local_rank("batch"));
    parts_.data->seek({state.num_batches, state.sample_idx, state.token_buffer});
  }
}

void TrainState::restore_grad_scaler(const checkpoint::Values& values) {
  if (!parts_.grad_scaler) return;
  if (const auto saved = checkpoint::parse_grad_scaler(values)) {
    parts_.grad_scaler->set_state({saved->scale, saved->growth_tracker});
  } else {
    spdlog::info("the checkpoint has no gradient scale (it was saved without float16): starting with {}",
                 parts_.grad_scaler->state().scale);
  }
}

// TorchTitan takes these from the checkpoint, in silence. Here the configuration decides, and a difference is said.
void TrainState::restore_hyperparameters(const checkpoint::Values& values) {
  const auto& first = parts_.optimizer->states().front().fqn;
  if (values.contains("lr_scheduler.base_lrs")) {
    warn_if_changed("optimizer.lr", checkpoint::parse_lr_scheduler(values).base_lr, parts_.base_lr);
  }
  if (values.contains("optimizer.param_groups." + first + ".lr")) {
    const auto group = checkpoint::parse_param_group(values, first);
    const auto& options = parts_.optimizer->options();
    warn_if_changed("optimizer.beta1", group.beta1, options.beta1);
    warn_if_changed("optimizer.beta2", group.beta2, options.beta2);
    warn_if_changed("optimizer.eps", group.eps, options.eps);
    warn_if_changed("optimizer.weight_decay", group.weight_decay, options.weight_decay);
  }
}

}  // namespace titan::train
