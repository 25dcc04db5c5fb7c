#include "config/pipeline_plan.h"

#include <cmath>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "config/keys/largest_sizes.h"
#include "pipeline/check_schedule.h"
#include "pipeline/schedule_csv.h"
#include "pipeline/schedule_kinds.h"
#include "pipeline/timeline.h"
#include "pipeline/with_communication.h"

namespace titan::config {
namespace {

std::vector<pipeline::StageModules> divide(const Parallelism& parallelism, std::int64_t num_layers,
                                           bool is_single_stage) {
  const pipeline::StageRequest request{.num_layers = num_layers,
                                       .num_ranks = parallelism.pipeline_parallel_degree,
                                       .is_single_stage = is_single_stage,
                                       .layers_per_stage = parallelism.pipeline_parallel_layers_per_stage,
                                       .first_stage_less_layers = parallelism.pipeline_parallel_first_stage_less_layers,
                                       .last_stage_less_layers = parallelism.pipeline_parallel_last_stage_less_layers};
  if (const auto& own = parallelism.module_fqns_per_model_part) {
    pipeline::check_stages(*own, request);
    return *own;
  }
  return pipeline::split_into_stages(request, pipeline::num_stages(request));
}

pipeline::PipelineSchedule read_order(const std::string& file, const pipeline::ScheduleKind& kind,
                                      const pipeline::PipelineSize& size) {
  pipeline::check_size(kind, size);
  pipeline::PipelineSchedule expected;
  expected.num_microbatches = size.num_microbatches;
  expected.rank_of_stage = pipeline::place_stages(size.num_ranks, size.num_stages(), kind.style);
  expected.orders.resize(static_cast<std::size_t>(size.num_ranks));
  try {
    auto schedule = pipeline::read_schedule_csv(read_file(file), file);
    pipeline::check_same_pipeline(schedule, expected, file);
    if (const auto fault = pipeline::find_wrong_computation(schedule)) throw DataError(file + ": " + *fault);
    return schedule;
  } catch (const DataError& error) {
    throw ConfigError(error.what(), {"parallelism.pipeline_parallel_schedule_csv"});
  }
}

int num_microbatches(const JobConfig& config) {
  const std::int64_t count = pipeline::num_microbatches(config.training.local_batch_size,
                                                        config.parallelism.pipeline_parallel_microbatch_size);
  if (count <= kMostMicrobatches) return static_cast<int>(count);
  throw ConfigError("training.local_batch_size (" + std::to_string(config.training.local_batch_size) + ") has " +
                        std::to_string(count) + " pipeline microbatches; at most " + std::to_string(kMostMicrobatches) +
                        " are taken: raise parallelism.pipeline_parallel_microbatch_size",
                    {"training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"});
}

// Appends the fault of one part of a plan, if making it throws.
void try_part(const std::function<void()>& part, std::vector<Fault>& errors) {
  try {
    part();
  } catch (const ConfigError& error) {
    errors.push_back({error.what(), error.keys()});
  }
}

}  // namespace

std::string PipelinePlan::text(int rank) const {
  std::vector<std::string> own;
  for (const int stage : pipeline::stages_of_rank(schedule, rank))
    own.push_back(std::to_string(stage) + " (" + pipeline::in_short(stages[static_cast<std::size_t>(stage)]) + ")");
  const auto tenths = std::lround(1000 * pipeline::simulate(schedule, pipeline::Costs()).bubble);
  const int count = schedule.num_microbatches;
  return std::to_string(count) + (count == 1 ? " microbatch" : " microbatches") + " through " +
         counted(schedule.num_stages(), "stage") + "; this rank has " + (own.size() == 1 ? "stage " : "stages ") +
         join(own, " and ") + "; if stages take equal time, ranks wait for " + std::to_string(tenths / 10) + "." +
         std::to_string(tenths % 10) + " % of it";
}

std::vector<pipeline::StageModules> PipelinePlan::stages_of_rank(int rank) const {
  std::vector<pipeline::StageModules> out;
  for (const int stage : pipeline::stages_of_rank(schedule, rank))
    out.push_back(stages[static_cast<std::size_t>(stage)]);
  return out;
}

bool PipelinePlan::splits_backward() const {
  for (const auto& order : schedule.orders)
    for (const pipeline::Step& step : order)
      if (step.first().kind == pipeline::Kind::kWeightGradient) return true;
  return false;
}

int PipelinePlan::rank_of(std::string_view fqn) const {
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (const std::string& module : stages[stage])
      if (fqn == module || fqn.starts_with(module + ".")) return schedule.rank_of_stage[stage];
  throw InternalError("no stage of the pipeline has " + std::string(fqn));
}

PipelinePlan pipeline_plan(const JobConfig& config, std::int64_t num_layers) {
  const Parallelism& parallelism = config.parallelism;
  const auto& kind = pipeline::find_schedule_kind(parallelism.pipeline_parallel_schedule);
  PipelinePlan plan;
  plan.stages = divide(parallelism, num_layers, kind.is_single_stage);
  const auto ranks = static_cast<int>(parallelism.pipeline_parallel_degree);
  const pipeline::PipelineSize size{.num_ranks = ranks,
                                    .stages_per_rank = static_cast<int>(plan.stages.size()) / ranks,
                                    .num_microbatches = num_microbatches(config)};
  const std::string& file = parallelism.pipeline_parallel_schedule_csv.value_or("");
  plan.schedule =
      pipeline::with_communication(file.empty() ? pipeline::make_schedule(kind, size) : read_order(file, kind, size));
  const auto check = pipeline::check_schedule(plan.schedule);
  TITAN_CHECK(!check.fault, *check.fault);
  TITAN_CHECK(!check.fault_if_sends_wait, *check.fault_if_sends_wait);
  return plan;
}

std::optional<PipelinePlan> find_pipeline_plan(const JobConfig& config, std::int64_t num_layers,
                                               std::vector<Fault>& errors) {
  const Parallelism& parallelism = config.parallelism;
  const std::size_t before = errors.size();
  const auto divide_model = [&] {
    divide(parallelism, num_layers,
           pipeline::find_schedule_kind(parallelism.pipeline_parallel_schedule).is_single_stage);
  };
  try_part(divide_model, errors);
  try_part([&] { num_microbatches(config); }, errors);
  if (errors.size() > before) return std::nullopt;
  std::optional<PipelinePlan> plan;
  try_part([&] { plan = pipeline_plan(config, num_layers); }, errors);
  return plan;
}

}  // namespace titan::config
