// The learning-rate schedule: linear warm-up, a stable stretch, then a decay. Bitwise equal to TorchTitan's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titan::optim {

enum class DecayType { kLinear, kSqrt, kCosine };

// Parses "linear", "sqrt" or "cosine". Throws ConfigError.
DecayType parse_decay_type(std::string_view name);

struct LrScheduleOptions {
  std::int64_t total_steps = 0;  // lr_scheduler.total_steps, or training.steps if that is not set
  std::int64_t warmup_steps = 0;
  std::optional<double> decay_ratio =
      std::nullopt;  // part of total_steps that decays; nullopt: everything after the warm-up
  DecayType decay_type = DecayType::kLinear;
  double min_lr_factor = 0.0;  // factor at the end of the decay
};

// Immutable; the only state of a run is the number of finished steps.
class LrSchedule {
 public:
  // Throws ConfigError for a negative count or a factor or ratio outside [0, 1]. Counts that exceed
  // total_steps are clamped, as config::validate() warns.
  explicit LrSchedule(const LrScheduleOptions& options);

  // Returns the factor of the base learning rate in the step after `finished_steps` finished ones. The first step has
  // finished_steps 0 and factor 1 / warmup_steps. The decay would reach min_lr_factor one step after the last, so that
  // the last step still learns; beyond that the factor stays constant (TorchTitan's formula turns negative there).
  double factor(std::int64_t finished_steps) const;

  std::int64_t warmup_steps() const { return warmup_steps_; }
  std::int64_t stable_steps() const { return stable_steps_; }  // one more than fits: the virtual step after the last
  std::int64_t decay_steps() const { return decay_steps_; }

 private:
  std::int64_t warmup_steps_;
  std::int64_t decay_steps_;
  std::int64_t stable_steps_;
  DecayType decay_type_;
  double min_lr_factor_;
};

}  // namespace titan::optim
