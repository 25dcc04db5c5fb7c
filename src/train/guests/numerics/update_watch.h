// Compares what each update of the optimizer reads with what the one before it wrote: bits of weights and moments that
// changed in between are found at no more cost than the update, which has all of them in registers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace titan::train {

class UpdateWatch {
 public:
  // `optimizer` must outlive this, and nothing else may ask it for sums meanwhile.
  explicit UpdateWatch(optim::Optimizer& optimizer);
  ~UpdateWatch();
  UpdateWatch(const UpdateWatch&) = delete;
  UpdateWatch& operator=(const UpdateWatch&) = delete;

  // Forgets what was written: something else than an update has written since, such as a load.
  void reset();

  // Returns the names of the tensors ("exp_avg of layers.3.attention.wq.weight") of which the update that has just
  // ended read other bits than the one before it wrote. Call it after each update. Costs nothing beside what the update
  // did.
  std::vector<std::string> changed_before_update();

  // Returns the same for what is in memory now, which was restored as it was before the last update. Costs a pass over
  // the tensors.
  std::vector<std::string> changed_in_restored();

  // True if the next update of parameter `index` shows whether its weight and summed_state() are what they are now.
  bool covers(std::size_t index) const { return wrote_.at(index).defined(); }

 private:
  void compare(std::size_t index, const at::Tensor& before, const at::Tensor& now, std::vector<std::string>& changed);

  optim::Optimizer& optimizer_;
  std::vector<at::Tensor> sums_;    // of the last update, see Optimizer::sum_updates()
  std::vector<at::Tensor> wrote_;   // by parameter, int64 [1 + summed_state()]; undefined if not known
  std::vector<at::Tensor> before_;  // the same before the last update
};

}  // namespace titan::train
