#include "optim/make_optimizer.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "distributed/config_dtype.h"
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
      std::move(params),
      AdamWOptions{
          .lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .state_dtype = options.state_dtype ? std::optional(dist::dtype_of(*options.state_dtype)) : std::nullopt});
}

constexpr Row kOptimizers[] = {{"AdamW", make_adamw}};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options, Params params) {
  for (const Row& row : kOptimizers)
    if (row.name == options.name) return row.make(options, std::move(params));
  throw InternalError("there is no optimizer " + options.name);
}

}  // namespace titan::optim
