#include "library/state_items.h"

#include <iterator>

#include "train/step/run_parameters.h"
#include "train/train_state.h"

namespace titan {

std::vector<optim::TrainedParameter> trained_parameters(nn::Module& model) {
  return train::RunParameters(model).to_train();
}

std::vector<checkpoint::Item> state_items(nn::Module& model) {
  return train::weight_items(train::RunParameters(model));
}

std::vector<checkpoint::Item> state_items(nn::Module& model, optim::Optimizer& optimizer) {
  auto items = state_items(model);
  auto own = train::optimizer_items(optimizer, optimizer.lr(), optimizer.lr());
  std::ranges::move(own, std::back_inserter(items));
  return items;
}

}  // namespace titan
