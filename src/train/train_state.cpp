#include "train/train_state.h"

#include <spdlog/spdlog.h>

#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/torchtitan_keys.h"

namespace titan::train {
namespace {

void warn_if_changed(const std::string& key, double saved, double configured) {
  if (saved != configured && speaks_for_all())
    spdlog::warn("{} is {} in the checkpoint and {} in the configuration: going on with {}", key, saved, configured,
                 configured);
}

std::vector<double> numbers_of(const Value& value, const std::string& what, std::size_t count) {
  if (count == 1) return {value.as_double(what)};
  std::vector<double> numbers;
  for (const Value& each : value.as_sequence(what)) numbers.push_back(each.as_double(what));
  if (numbers.size() != count)
    throw CheckpointError(what + " has " + std::to_string(numbers.size()) + " entries, expected " +
                          std::to_string(count));
  return numbers;
}

std::string mode_text(const Value& value) {
  return value == Value(true) ? "True" : value == Value(false) ? "False" : "another value";
}

// Parameters by what may have changed for them: the key, and its values in the checkpoint and in the configuration.
using Changes = std::map<std::tuple<std::string, double, double>, std::vector<std::string>>;

// Adds the numbers of an entry of `fqn` to `changes`. Throws CheckpointError for a mode that the optimizer lacks. None
// is PyTorch's "choose for me".
void compare_hyperparameter(const optim::Hyperparameter& own, const std::string& key, const Value& saved,
                            Changes& changes, const std::string& fqn) {
  if (own.must_match && !saved.is_none() && saved != own.value)
    throw CheckpointError(key + ": expected " + mode_text(own.value) + ", found " + mode_text(saved) +
                          ", a mode of the optimizer that is not built; to start with the weights alone, set "
                          "checkpoint.exclude_from_loading = [\"optimizer\", \"lr_scheduler\"]");
  if (own.keys.empty()) return;
  const auto theirs = numbers_of(saved, key, own.keys.size()), ours = numbers_of(own.value, key, own.keys.size());
  for (std::size_t i = 0; i < ours.size(); ++i) changes[{own.keys[i], theirs[i], ours[i]}].push_back(fqn);
}

// Warns of each change, and says for which parameters it holds unless for all.
void warn_of(const Changes& changes, std::size_t num_parameters) {
  for (const auto& [change, fqns] : changes) {
    const auto& [key, saved, configured] = change;
    const bool is_of_all = fqns.size() == num_parameters;
    const std::string of = is_of_all ? "" : " of " + counted(std::ssize(fqns), "parameter") + " (" + fqns.front() + ")";
    warn_if_changed(key + of, saved, configured);
  }
}

checkpoint::TensorItem item_of(const nn::NamedParameter& parameter) {
  return {.local = parameter.tensor().detach(),
          .spec = parameter.spec(),
          .sharded = parameter.parameter->sharding.has_value()};
}

// Returns the empty part that this rank has of a parameter of another rank.
checkpoint::TensorItem absent_item(const RunParameter& parameter) {
  auto local_shape = parameter.shape;
  local_shape.front() = 0;
  auto offset = std::vector<std::int64_t>(parameter.shape.size(), 0);
  offset.front() = parameter.shape.front();
  return {.local = at::empty(local_shape, parameter.dtype),
          .spec = {parameter.shape, std::move(offset), local_shape},
          .sharded = true,
          .absent = true};
}

// Returns an item that a checkpoint may lack.
checkpoint::Item optional_item(const std::string& key) { return checkpoint::value_item(key, {}, /*optional=*/true); }

}  // namespace

// A tied parameter is stored under each of its names, as TorchTitan does; its optimizer state under the first.
std::vector<checkpoint::Item> weight_items(const RunParameters& parameters) {
  std::vector<checkpoint::Item> items;
  for (const auto& [fqn, parameter] : parameters.stored()) {
    auto item = parameter->local ? item_of(*parameter->local) : absent_item(*parameter);
    item.fqn = fqn;
    item.path = {fqn};
    if (fqn != parameter->fqn) item.tied_to = parameter->fqn;
    items.push_back(std::move(item));
  }
  return items;
}

std::vector<checkpoint::Item> optimizer_items(optim::Optimizer& optimizer, double lr, double base_lr) {
  std::vector<checkpoint::Item> items;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const auto& [fqn, param, sharding] = optimizer.parameters()[i];
    for (const auto& [name, tensor, is_like_parameter] : optimizer.state(i)) {
      const bool is_cut = is_like_parameter && sharding.has_value();
      auto spec = is_cut ? sharding->spec : dist::ShardSpec::replicated(tensor.sizes().vec());
      items.push_back(checkpoint::optimizer_tensor(fqn, name, tensor, std::move(spec), is_cut));
    }
    std::vector<std::pair<std::string, Value>> entries;
    for (const auto& each : optimizer.hyperparameters(i)) entries.emplace_back(each.name, each.value);
    const double factor = optimizer.lr_factor(i);
    checkpoint::append_param_group(items, fqn, lr * factor, entries, base_lr * factor);
  }
  return items;
}

std::vector<checkpoint::Item> TrainState::items(bool model_only) {
  std::vector<checkpoint::Item> items = weight_items(*parts_.parameters);
  if (model_only) return items;
  const double next_lr = parts_.base_lr * parts_.schedule->factor(step);
  for (auto& item : optimizer_items(*parts_.optimizer, next_lr, parts_.base_lr)) items.push_back(std::move(item));
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
  for (const auto* guest : guests_)
    items.push_back(checkpoint::value_item(guest->saved_key(), guest->saved(), /*optional=*/true));
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

// `values` lacks what exclude_from_loading excludes.
void TrainState::restored(const Values& values, bool model_only) {
  if (model_only) return;
  restore_progress(values);
  restore_data(values);
  restore_grad_scaler(values);
  checkpoint::restore_rng(values, parts_.rank, parts_.world_size);
  restore_hyperparameters(values);
  for (auto* guest : guests_) {
    const auto found = values.find(guest->saved_key());
    guest->restore(found == values.end() ? nullptr : &found->second);
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
  const optim::Optimizer& optimizer = *parts_.optimizer;
  if (optimizer.parameters().empty()) return;
  const auto& first = optimizer.parameters().front().fqn;
  if (!values.contains(checkpoint::param_group_key(first, "lr"))) {
    const auto base_lrs = values.find("lr_scheduler.base_lrs");
    if (base_lrs != values.end() && base_lrs->second.as_sequence(base_lrs->first).size() == 1)
      warn_if_changed("optimizer.lr", checkpoint::parse_lr_scheduler(values).base_lr, parts_.base_lr);
    return;
  }
  Changes changes;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const std::string& fqn = optimizer.parameters()[i].fqn;
    const auto saved = [&](const std::string& name) -> const Value& {
      return value_at(values, checkpoint::param_group_key(fqn, name));
    };
    const std::string key = checkpoint::param_group_key(fqn, "initial_lr");
    changes[{"optimizer.lr", saved("initial_lr").as_double(key), parts_.base_lr * optimizer.lr_factor(i)}].push_back(
        fqn);
    for (const auto& each : optimizer.hyperparameters(i))
      compare_hyperparameter(each, checkpoint::param_group_key(fqn, each.name), saved(each.name), changes, fqn);
  }
  warn_of(changes, optimizer.parameters().size());
}

}  // namespace titan::train
