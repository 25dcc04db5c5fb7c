#include "train/guests/checksum_log.h"

#include <ATen/ATen.h>
#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/process/phase.h"
#include "base/run_layout.h"
#include "metrics/history/json_lines.h"
#include "train/guests/tensor_checksum.h"

namespace titan::train {
namespace {

// Returns true if this rank's part is in the checksum. Among ranks that hold the same part, this is the first along
// every mesh axis that does not shard it.
bool owns_replica(const nn::NamedParameter& parameter, int rank) {
  const auto& sharding = parameter.parameter->sharding;
  if (!sharding) return rank == 0;
  const auto& coordinate = sharding->mesh.coordinate();
  for (std::size_t axis = 0; axis < coordinate.size(); ++axis)
    if (!dist::shard_dim(sharding->placements[axis]) && coordinate[axis] != 0) return false;
  return true;
}

// Returns this rank's part of the checksum of a parameter, or of its gradient; 0 for what another rank owns_replica.
at::Tensor sum_of(const RunParameter& parameter, bool of_gradient, int rank, at::Device device) {
  if (!parameter.local || parameter.is_copy())
    return at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device));
  const auto& local = *parameter.local;
  const at::Tensor tensor = of_gradient ? local.tensor().grad() : local.tensor();
  return tensor_checksum(owns_replica(local, rank) ? tensor : at::Tensor(), local.spec(), device);
}

nlohmann::ordered_json row_part(const RunParameters& parameters, const at::Tensor& sums) {
  auto out = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    out[parameters[i].fqn] =
        fmt::format("{:016x}", static_cast<std::uint64_t>(sums[static_cast<std::int64_t>(i)].item<std::int64_t>()));
  return out;
}

}  // namespace

ChecksumLog::ChecksumLog(std::filesystem::path folder, std::int64_t freq, const RunParameters& parameters,
                         dist::World& world, const std::int64_t& finished_steps)
    : folder_(std::move(folder)),
      freq_(freq),
      world_(world),
      finished_steps_(finished_steps),
      parameters_(parameters) {}

at::Tensor ChecksumLog::sums_of_weights() {
  std::vector<at::Tensor> sums;
  for (const auto& parameter : parameters_)
    sums.push_back(sum_of(parameter, /*of_gradient=*/false, world_.rank(), world_.device()));
  return at::stack(sums);
}

void ChecksumLog::before_step() {
  if (std::exchange(has_begun_, true)) return;
  is_fresh_ = finished_steps_ == 0;
  if (world_.rank() == 0)
    history_ = std::make_unique<metrics::StepHistory>(folder_ / layout::kChecksumsFile, finished_steps_,
                                                      metrics::json_lines("a row of checksums"));
  if (freq_ > 0 && is_fresh_) initial_weights_ = sums_of_weights();
}

at::Tensor ChecksumLog::before_update(const StepView& step) {
  if (!is_due(step.number)) return {};
  const PhaseScope phase(Phase::kLog);
  std::vector<at::Tensor> sums;
  for (const auto& parameter : parameters_)
    sums.push_back(sum_of(parameter, /*of_gradient=*/true, world_.rank(), world_.device()));
  gradients_ = at::stack(sums);
  return {};
}

Verdict ChecksumLog::after_step(const StepView& step) {
  const PhaseScope phase(Phase::kLog);
  file_.run([&] { begin_history(step.number); });
  if (initial_weights_.defined()) write(0, {}, std::exchange(initial_weights_, {}));
  if (is_due(step.number)) write(step.number, std::exchange(gradients_, {}), sums_of_weights());
  return Verdict::go_on();
}

// Begins the history after the first step, since a start that fails earlier must keep the rows of the run before it.
// After a rollback, removes the rows of steps that run again.
void ChecksumLog::begin_history(std::int64_t step) {
  if (!history_) return;
  // begin() would keep row 0 of an earlier start, whose step does not run again.
  if (std::exchange(is_fresh_, false)) std::filesystem::remove(folder_ / layout::kChecksumsFile);
  history_->begin();
  if (step <= last_step_) history_->roll_back(step - 1);
  last_step_ = step;
}

void ChecksumLog::write(std::int64_t step, const at::Tensor& gradients, const at::Tensor& weights) {
  auto sums = (gradients.defined() ? at::stack({weights, gradients}) : weights.unsqueeze(0)).to(at::kCPU);
  world_.group().all_reduce(sums, dist::ReduceOp::kSum).wait();
  if (!history_) return;
  nlohmann::ordered_json row = {{"step", step}};
  if (gradients.defined()) row["gradients"] = row_part(parameters_, sums[1]);
  row["weights"] = row_part(parameters_, sums[0]);
  file_.run([&] { history_->append(row.dump()); });
}

}  // namespace titan::train
