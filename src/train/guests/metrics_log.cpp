#include "train/guests/metrics_log.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/process/phase.h"
#include "distributed/config_dtype.h"
#include "metrics/cpu_peak.h"

namespace titan::train {

Verdict MetricsLog::after_step(const StepView& step) {
  // The host runs ahead of a GPU. It waits here for work of the steps since the last row, and that time belongs to
  // them.
  if (metrics_.should_log(step.number)) wait_for_device();
  metrics_.end_step(step.number);
  if (metrics_.should_log(step.number)) log(step);
  return Verdict::go_on();
}

void MetricsLog::wait_for_device() const {
  const auto device = meshes_.loss.device();
  if (device.is_cpu()) return;
  const PhaseScope phase(Phase::kDevice);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

void MetricsLog::log(const StepView& step) {
  const PhaseScope phase(Phase::kLog);
  const auto host = [](const at::Tensor& tensor) { return static_cast<double>(tensor.item<float>()); };
  const StepOutput& output = step.output;
  // On the host: a group that only the log uses has no communicator on the device.
  auto mean_loss = output.loss.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  meshes_.rows.group().all_reduce(mean_loss, dist::ReduceOp::kSum).wait();  // of this rank's rows
  auto max_loss = mean_loss * static_cast<double>(step.input.global_valid_tokens) /
                  static_cast<double>(step.input.local_valid_tokens);
  const auto bad_records = data_.bad_records();
  auto counts = at::tensor({metrics_.tokens_seen(), bad_records.value_or(0)}, at::kLong);
  auto& group = meshes_.batch.group();
  group.all_reduce(mean_loss, dist::ReduceOp::kSum).wait();
  group.all_reduce(max_loss, dist::ReduceOp::kMax).wait();
  group.all_reduce(counts, dist::ReduceOp::kSum).wait();
  metrics_.log({.step = step.number,
                .loss = host(mean_loss),
                .max_loss = host(max_loss),
                .grad_norm = host(output.grad_norm),
                .lr = output.lr,
                .tokens_seen = metrics_.tokens_before() + counts[0].item<std::int64_t>(),
                .grad_scale = output.grad_scale.defined() ? std::optional(host(output.grad_scale)) : std::nullopt,
                .bad_records = bad_records ? std::optional(counts[1].item<std::int64_t>()) : std::nullopt});
  measure_peak_flops();
}

// Measures the peak after the first line is logged, since it takes longer than a small step. Most processors multiply
// float16 values one by one, which is not a peak: mfu stays unknown.
void MetricsLog::measure_peak_flops() {
  if (metrics_.has_peak_flops() || !meshes_.loss.device().is_cpu() || compute_dtype_ == "float16") return;
  metrics_.set_peak_flops(metrics::measure_cpu_peak_flops(dist::dtype_of(compute_dtype_)));
}

}  // namespace titan::train
