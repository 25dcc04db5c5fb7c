#include "optim/optimizer.h"

#include <algorithm>

#include "base/error.h"

namespace titan::optim {

Optimizer::Optimizer(std::vector<TrainedParameter> params) : params_(std::move(params)) {
  for (const auto& param : params_) sharded_over_.push_back(groups_that_cut(param.sharding));
}

std::vector<std::string> Optimizer::fqns() const {
  std::vector<std::string> out;
  for (const auto& param : params_) out.push_back(param.fqn);
  return out;
}

std::vector<at::Tensor> Optimizer::grads() const {
  std::vector<at::Tensor> out;
  for (const auto& param : params_) out.push_back(param.tensor.grad());
  return out;
}

std::vector<ShardedGrad> Optimizer::sharded_grads() const {
  std::vector<ShardedGrad> out;
  for (std::size_t i = 0; i < params_.size(); ++i) out.push_back({params_[i].tensor.grad(), sharded_over_[i]});
  return out;
}

void Optimizer::zero_grad() {
  for (const auto& param : params_) param.tensor.mutable_grad().reset();
}

std::vector<at::Tensor>* Optimizer::new_sums() {
  if (sums_) sums_->assign(params_.size(), {});
  return sums_;
}

void Optimizer::check_any_grad() const {
  const bool any = std::ranges::any_of(params_, [](const auto& param) { return param.tensor.grad().defined(); });
  if (any || params_.empty()) return;
  if (params_.front().tensor.is_meta())
    throw InternalError("[optim] " + params_.front().fqn +
                        " is on the meta device: make the optimizer after the parameters have memory");
  throw InternalError("[optim] none of the " + std::to_string(params_.size()) + " parameters from " +
                      params_.front().fqn +
                      " on has a gradient. Run backward first; and make the optimizer after "
                      "fully_shard, which replaces the parameters");
}

}  // namespace titan::optim
