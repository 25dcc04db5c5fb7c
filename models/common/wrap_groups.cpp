#include "models/common/wrap_groups.h"

#include <string>

#include "base/error.h"
#include "config/keys/values/fsdp_wrap.h"

namespace titan::models {

std::optional<std::vector<fsdp::WrapGroup>> wrap_groups(nn::Module& model, const config::Parallelism& parallelism) {
  const config::FsdpWrap wrap = config::parse_fsdp_wrap(parallelism.fsdp_wrap);
  if (wrap.kind == config::FsdpWrap::Kind::kBlock) return std::nullopt;
  if (wrap.kind == config::FsdpWrap::Kind::kSize) return fsdp::wrap_by_size(model, wrap.min_parameters);
  try {
    return fsdp::wrap_by_name(model, wrap.names);
  } catch (const ConfigError& error) {
    throw ConfigError(std::string(config::kFsdpWrapKey) + ": " + error.what(), {config::kFsdpWrapKey});
  }
}

void check_wrap(const TrainSpec& spec, const config::Parallelism& parallelism) {
  if (config::parse_fsdp_wrap(parallelism.fsdp_wrap).kind != config::FsdpWrap::Kind::kNames) return;
  constexpr std::int64_t kTooLargeToBuild = 10'000;  // blocks; such a model is refused for its memory
  if (spec.stats.num_layers > kTooLargeToBuild) return;
  wrap_groups(*spec.build_model(std::nullopt), parallelism);
}

}  // namespace titan::models
