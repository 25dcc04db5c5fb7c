#include "optim/make_optimizer.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "optim/adamw.h"

namespace titan::optim {
namespace {

using Params = std::vector<TrainedParameter>;

struct Row {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const config::Optimizer& options, Params params);
};

std::unique_ptr<Optimizer> make_adamw(const config::Optimizer& options, Params params) {
  return std::make_unique<AdamW>(
      std::move(params), AdamWOptions{options.lr, options.beta1, options.beta2, options.eps, options.weight_decay});
}

constexpr Row kOptimizers[] = {{"AdamW", make_adamw}};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options, Params params) {
  for (const Row& row : kOptimizers)
    if (row.name == options.name) return row.make(options, std::move(params));
  throw InternalError("there is no optimizer " + options.name);
}

}  // namespace titan::optim
