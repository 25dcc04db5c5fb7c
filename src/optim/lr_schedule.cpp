#include "optim/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"

namespace titan::optim {
namespace {

void require(bool condition, const std::string& key, const std::string& expected, const std::string& found) {
  if (!condition) throw ConfigError("lr_scheduler." + key + " must be " + expected + "; found " + found);
}

bool is_fraction(double value) { return value >= 0.0 && value <= 1.0; }

void validate(const LrScheduleOptions& options) {
  require(options.total_steps >= 0, "total_steps", "0 or more", std::to_string(options.total_steps));
  require(options.warmup_steps >= 0, "warmup_steps", "0 or more", std::to_string(options.warmup_steps));
  require(!options.decay_ratio || is_fraction(*options.decay_ratio), "decay_ratio", "between 0 and 1",
          std::to_string(options.decay_ratio.value_or(0.0)));
  require(is_fraction(options.min_lr_factor), "min_lr_factor", "between 0 and 1",
          std::to_string(options.min_lr_factor));
}

double decayed(DecayType type, double progress) {
  switch (type) {
    case DecayType::kLinear:
      return 1.0 - progress;
    case DecayType::kSqrt:
      return 1.0 - std::sqrt(progress);
    case DecayType::kCosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  throw InternalError("unknown decay type");
}

}  // namespace

DecayType parse_decay_type(std::string_view name) {
  static const std::array<std::string, 3> kNames = {"linear", "sqrt", "cosine"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<DecayType>(found - kNames.begin());
  const auto near = nearest_name(name, kNames);
  throw ConfigError("lr_scheduler.decay_type must be one of " + join(kNames, ", ") + "; found \"" + std::string(name) +
                    "\"" + (near ? ". Did you mean \"" + *near + "\"?" : ""));
}

LrSchedule::LrSchedule(const LrScheduleOptions& options)
    : warmup_steps_(options.warmup_steps), decay_type_(options.decay_type), min_lr_factor_(options.min_lr_factor) {
  validate(options);
  const std::int64_t total = options.total_steps;
  warmup_steps_ = std::min(warmup_steps_, total);
  const std::int64_t rest = total - warmup_steps_;
  decay_steps_ = rest;
  if (options.decay_ratio) {
    // Like Python's round(): halves go to the even neighbor, which is nearbyint's default too.
    const double decay = std::nearbyint(static_cast<double>(total) * *options.decay_ratio);
    decay_steps_ = std::min(static_cast<std::int64_t>(decay), rest);
  }
  stable_steps_ = rest + 1 - decay_steps_;
}

double LrSchedule::factor(std::int64_t finished_steps) const {
  TITAN_CHECK(finished_steps >= 0, "negative number of finished steps: " + std::to_string(finished_steps));
  const auto step = static_cast<double>(finished_steps + 1);
  if (finished_steps < warmup_steps_) return step / static_cast<double>(warmup_steps_);
  const std::int64_t before_decay = warmup_steps_ + stable_steps_;
  if (finished_steps < before_decay || decay_steps_ == 0) return 1.0;
  const double progress = std::min(1.0, (step - static_cast<double>(before_decay)) / static_cast<double>(decay_steps_));
  return min_lr_factor_ + (1.0 - min_lr_factor_) * decayed(decay_type_, progress);
}

}  // namespace titan::optim
