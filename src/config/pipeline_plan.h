// How a configuration divides a model and its batches over the ranks of a pipeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "pipeline/pipeline_schedule.h"
#include "pipeline/stage_split.h"

namespace titan::config {

struct PipelinePlan {
  std::vector<pipeline::StageModules> stages;  // of the whole model
  pipeline::PipelineSchedule schedule;         // with communication, and checked

  // Returns "4 microbatches through 4 stages; this rank has stages 0 (tok_embeddings, layers.0) and 2 (...); if stages
  // take equal time, ranks wait for 11.1 % of it".
  std::string text(int rank) const;
  // Returns the modules of the stages that a rank has, in ascending order of the stages.
  std::vector<pipeline::StageModules> stages_of_rank(int rank) const;
  // True if weights get their gradients apart from the rest of backward.
  bool splits_backward() const;
  // Returns the rank that has a parameter or module of the model.
  int rank_of(std::string_view fqn) const;
};

// Returns the plan for a model of `num_layers` blocks, whatever the degree. Reads the file of
// parallelism.pipeline_parallel_schedule_csv. Throws ConfigError naming the keys to change.
PipelinePlan pipeline_plan(const JobConfig& config, std::int64_t num_layers);

// Returns the same plan, or nullopt after appending all that is wrong with it, as far as one fault does not hide
// another.
std::optional<PipelinePlan> find_pipeline_plan(const JobConfig& config, std::int64_t num_layers,
                                               std::vector<Fault>& errors);

}  // namespace titan::config
