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

// Returns an item that a checkpoint may lack.
checkpoint::Item optional_item(const std::string& key) { return checkpoint::value_item(key, {}, /*optional=*/true); }

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
  const auto& states = parts_.optimizer->states();
  TITAN_CHECK(states.size() == parameters.size(), "the optimizer has other parameters than the model");
  for (std::size_t i = 0; i < parameters.size(); ++i) append_optimizer(items, parameters[i], states[i]);
  const double next_lr = parts_.base_lr * parts_.schedule->factor(step);
  checkpoint::append_lr_scheduler(items, {parts_.base_lr, step, next_lr});
  // TorchTitan counts the tokens of one rank, which says little once the number of ranks has changed, so the total is
  // saved, too.
  const std::int64_t before = parts_.metrics->tokens_before(), own = parts_.metrics->tokens_seen();
  checkpoint::append_train_state(items, {step, before / parts_.data_parallel_size + own});
  items.push_back(checkpoint::value_item(checkpoint::kTokensKey, before + own * parts_.data_parallel_size,
                                         /*optional=*/true));
  if (parts_.grad_scaler) {
    const auto scaler = parts_.grad_scaler->state();
    checkpoint::append_grad_scaler(items, {scaler.scale, scaler.growth_tracker});
  }
  append_data(items);
  checkpoint::append_rng(items, parts_.rank, parts_.world_size);
  items.push_back(checkpoint::value_item(checkpoint::kRunKey, parts_.record->value(), /*optional=*/true));
  for (const auto* saved : saved_values_)
    items.push_back(checkpoint::value_item(saved->key(), saved->value(), /*optional=*/true));
  return items;
}

std::vector<checkpoint::Item> TrainState::probes() {
  std::vector<checkpoint::Item> probes;
  for (const std::string& key : parts_.data->probes()) probes.push_back(optional_item(key));
  probes.push_back(optional_item(checkpoint::kRunKey));
  return probes;
}

void TrainState::check_fits(const Values& saved) {
  parts_.data->check_state(saved);
  if (const auto run = saved.find(checkpoint::kRunKey); run != saved.end()) {
    parts_.record->check(run->second);
  } else {
    spdlog::info("the checkpoint does not say with which configuration it was saved: nothing to compare with this one");
  }
}

void TrainState::append_optimizer(std::vector<checkpoint::Item>& items, const nn::NamedParameter& parameter,
                                  const optim::AdamWState& state) {
  TITAN_CHECK(state.fqn == parameter.fqn, "the optimizer has " + state.fqn + " where the model has " + parameter.fqn);
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

// `values` lacks what exclude_from_loading excludes.
void TrainState::restored(const Values& values, bool model_only) {
  if (model_only) return;
  restore_progress(values);
  restore_data(values);
  restore_grad_scaler(values);
  checkpoint::restore_rng(values, parts_.rank, parts_.world_size);
  restore_hyperparameters(values);
  for (auto* part : saved_values_) {
    const auto found = values.find(part->key());
    part->restore(found == values.end() ? nullptr : &found->second);
  }
}

void TrainState::restore_progress(const Values& values) {
  if (!values.contains(checkpoint::kStepKey)) return;
  const auto progress = checkpoint::parse_train_state(values);
  step = progress.step;
  const auto tokens = values.find(checkpoint::kTokensKey);
  const bool is_known = tokens != values.end();
  parts_.metrics->set_tokens_before(is_known ? tokens->second.as_int(checkpoint::kTokensKey) : 0);
  parts_.metrics->set_tokens_seen(is_known ? 0 : progress.ntokens_seen);
}

void TrainState::append_data(std::vector<checkpoint::Item>& items) const {
  for (StateEntry& entry : parts_.data->state()) {
    Value stored = entry.pickled ? checkpoint::pickled(entry.value) : std::move(entry.value);
    items.push_back(checkpoint::value_item(entry.key, std::move(stored), entry.optional));
  }
}

void TrainState::restore_data(const Values& values) {
  Values saved;
  for (const StateEntry& entry : parts_.data->state()) {
    const auto found = values.find(entry.key);
    if (found == values.end()) continue;
    saved[entry.key] = entry.pickled ? checkpoint::unpickled(found->second, entry.key) : found->second;
  }
  if (!saved.empty()) parts_.data->load_state(saved);
}

void TrainState::restore_grad_scaler(const Values& values) {
  if (!parts_.grad_scaler) return;
  if (const auto saved = checkpoint::parse_grad_scaler(values)) {
    parts_.grad_scaler->set_state({saved->scale, saved->growth_tracker});
  } else {
    spdlog::info("the checkpoint has no gradient scale (it was saved without float16): starting with {}",
                 parts_.grad_scaler->state().scale);
  }
}

// Warns of changed hyperparameters: the configuration decides. TorchTitan silently takes the checkpoint's.
void TrainState::restore_hyperparameters(const Values& values) {
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
