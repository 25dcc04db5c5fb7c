#include "optim/make_optimizer.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "distributed/config_dtype.h"
#include "optim/adamw.h"
#include "optim/param_groups.h"

namespace titan::optim {
namespace {

using Params = std::vector<TrainedParameter>;

struct Row {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const config::Optimizer& options, Params params);
};

std::unique_ptr<Optimizer> make_adamw(const config::Optimizer& options, Params params) {
  AdamWOptions adamw{.lr = options.lr,
                     .beta1 = options.beta1,
                     .beta2 = options.beta2,
                     .eps = options.eps,
                     .weight_decay = options.weight_decay};
  if (options.state_dtype) adamw.state_dtype = dist::dtype_of(*options.state_dtype);
  std::vector<std::string> fqns;
  for (const auto& param : params) fqns.push_back(param.fqn);
  auto rates = rates_of(options, fqns);
  return std::make_unique<AdamW>(std::move(params), adamw, std::move(rates));
}

constexpr Row kOptimizers[] = {{"AdamW", make_adamw}};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options, Params params) {
  for (const Row& row : kOptimizers)
    if (row.name == options.name) return row.make(options, std::move(params));
  throw InternalError("there is no optimizer " + options.name);
}

}  // namespace titan::optim
