#include "base/process/step_work.h"

#include <algorithm>

namespace titan {

double StepProgress::share() const {
  if (forwards == 0 || layers == 0) return 0;
  const std::int64_t done = forwards - (is_in_backward() ? 0 : 1) + 2 * backwards;
  return std::min(1.0, static_cast<double>(done) / static_cast<double>(3 * layers * microbatches));
}

std::string PipelineWork::text() const {
  if (stage < 0 || has_ended) return "";
  return (is_forward ? "forward of stage " : "backward of stage ") + std::to_string(stage) + ", microbatch " +
         std::to_string(microbatch);
}

std::string StepProgress::text() const {
  if (pipeline.stage >= 0) return pipeline.text();
  if (forwards == 0 || layers == 0) return "";
  const std::int64_t earlier = (forwards - 1) / layers;  // microbatches
  const std::int64_t layer = is_in_backward() ? std::clamp<std::int64_t>((earlier + 1) * layers - backwards, 1, layers)
                                              : forwards - earlier * layers;
  std::string text = (is_in_backward() ? "backward of layer " : "forward of layer ") + std::to_string(layer) + " of " +
                     std::to_string(layers);
  if (microbatches > 1) text += ", microbatch " + std::to_string(earlier + 1) + " of " + std::to_string(microbatches);
  return text;
}

void StepWork::begin_step(std::int64_t microbatches) {
  microbatches_ = microbatches;
  pipeline_ = PipelineWork{};
  forwards_ = 0;
  losses_ = 0;
  backwards_ = 0;
}

void StepWork::end_pipeline() {
  PipelineWork work = pipeline_;
  work.has_ended = true;
  pipeline_ = work;
}

std::string StepWork::of_pipeline(Phase phase) const {
  if (phase != Phase::kStep && phase != Phase::kValidation) return "";
  return pipeline_.load().text();
}

StepWork& step_work() {
  static auto* const work = new StepWork;  // never destroyed: threads that end late may still use it
  return *work;
}

}  // namespace titan
