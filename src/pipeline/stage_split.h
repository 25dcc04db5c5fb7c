// Divides a model into pipeline stages, as TorchTitan does. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::pipeline {

// The keys that decide how a model is divided, and the model's number of layers.
struct StageRequest {
  std::int64_t num_layers = 0;                   // model.args.n_layers, or the flavor's
  std::int64_t num_ranks = 1;                    // parallelism.pipeline_parallel_degree
  bool is_single_stage = true;                   // ScheduleKind::is_single_stage
  std::optional<std::int64_t> layers_per_stage;  // parallelism.pipeline_parallel_layers_per_stage
  std::int64_t first_stage_less_layers = 1;      // the embedding counts as so many layers
  std::int64_t last_stage_less_layers = 1;       // the last norm and the output count as so many layers
};

// Returns the number of stages: one per rank, or two per rank if the schedule has several and layers_per_stage is not
// set. Throws ConfigError if layers_per_stage does not give a number that the schedule can have.
std::int64_t num_stages(const StageRequest& request);

// The modules of a stage, as names of a model's children: "tok_embeddings", "layers.0" and so on, "norm", "output".
using StageModules = std::vector<std::string>;

// Returns "tok_embeddings, layers.0-3": blocks that follow each other as a range.
std::string in_short(const StageModules& modules);

// Divides the layers evenly over stages; the first ones have one more if they do not divide. Throws ConfigError if a
// stage would have less than nothing.
std::vector<StageModules> split_into_stages(const StageRequest& request, std::int64_t num_stages);

// Checks a list of the user's own (parallelism.module_fqns_per_model_part): its number of stages suits the ranks and
// the schedule, and it has every module once, in the model's order. Throws ConfigError if not. TorchTitan drops a
// module that is in no list, and trains another model.
void check_stages(const std::vector<StageModules>& stages, const StageRequest& request);

}  // namespace titan::pipeline
