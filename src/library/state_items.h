// Lists what a checkpoint stores of a model and its optimizer, under TorchTitan's keys: weights under their names, the
// optimizer's state under "optimizer.". The functions correspond to PyTorch's get_model_state_dict and
// get_optimizer_state_dict.
#pragma once

#include <vector>

#include "checkpoint/dcp/item.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace titan {

// Returns the parameters for an optimizer. Call it after fully_shard and to_empty, which replace them.
std::vector<optim::TrainedParameter> trained_parameters(nn::Module& model);

// Returns this rank's parts of the weights, for checkpoint::save and load. They share the parameters' memory, so that
// a load sets the model. Call it while no parameters are gathered.
std::vector<checkpoint::Item> state_items(nn::Module& model);

// Returns the weights and the optimizer's state; a load sets both. The learning rate and the other hyperparameters are
// saved too, but unlike PyTorch's load_state_dict a load does not set them.
std::vector<checkpoint::Item> state_items(nn::Module& model, optim::Optimizer& optimizer);

}  // namespace titan
