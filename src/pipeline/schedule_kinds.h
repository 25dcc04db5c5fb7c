// The schedules that parallelism.pipeline_parallel_schedule can name, with TorchTitan's names. No torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/pipeline_keys.h"
#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// The size of a pipeline. All are at least 1.
struct PipelineSize {
  int num_ranks = 1;  // parallelism.pipeline_parallel_degree
  int stages_per_rank = 1;
  int num_microbatches = 1;

  int num_stages() const { return num_ranks * stages_per_rank; }
};

struct ScheduleKind {
  std::string_view name;
  bool is_single_stage;  // one stage per rank; the others have two or more, and kV exactly two
  StageStyle style;
  bool splits_backward;  // has kInputGradient and kWeightGradient
  // Makes one rank's order; null if the order has to come from a CSV file.
  std::vector<Step> (*order_of_rank)(const PipelineSize& size, int rank);
};

// Returns all kinds: first those with an order of their own, then PipelineScheduleSingle and PipelineScheduleMulti,
// which only say how many stages a rank has if a CSV file has the order.
std::span<const ScheduleKind> schedule_kinds();

// Returns the names of the kinds with an order of their own.
std::vector<std::string> schedule_names();

// Returns the kind with that name, in which case does not count. Throws ConfigError for another name.
const ScheduleKind& find_schedule_kind(std::string_view name);

// Returns parallelism.pipeline_parallel_microbatch_size's number of microbatches in training.local_batch_size.
// Throws ConfigError if it does not divide.
std::int64_t num_microbatches(std::int64_t local_batch_size, std::int64_t microbatch_size);

// Throws ConfigError, with the keys to change, if the kind has no schedule of that size. For a kind without an order of
// its own this is only about the stages per rank.
void check_size(const ScheduleKind& kind, const PipelineSize& size, const SizeWords& words = {});

// Makes the order of computation of all ranks. Throws ConfigError as check_size() does, and for a kind without an order
// of its own.
PipelineSchedule make_schedule(const ScheduleKind& kind, const PipelineSize& size, const SizeWords& words = {});

}  // namespace titan::pipeline
