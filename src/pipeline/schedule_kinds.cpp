#include "pipeline/schedule_kinds.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/nearest_numbers.h"
#include "pipeline/rank_orders.h"

namespace titan::pipeline {
namespace {

constexpr std::array kKinds = {
    ScheduleKind{"1F1B", true, StageStyle::kLoop, false, one_forward_one_backward_order},
    ScheduleKind{"GPipe", true, StageStyle::kLoop, false, gpipe_order},
    ScheduleKind{"Interleaved1F1B", false, StageStyle::kLoop, false, interleaved_order},
    ScheduleKind{"LoopedBFS", false, StageStyle::kLoop, false, looped_bfs_order},
    ScheduleKind{"InterleavedZeroBubble", false, StageStyle::kLoop, true, interleaved_zero_bubble_order},
    ScheduleKind{"ZBVZeroBubble", false, StageStyle::kV, true, zbv_order},
    ScheduleKind{"DualPipeV", false, StageStyle::kV, true, dual_pipe_v_order},
    ScheduleKind{"PipelineScheduleSingle", true, StageStyle::kLoop, false, nullptr},
    ScheduleKind{"PipelineScheduleMulti", false, StageStyle::kLoop, false, nullptr},
};

std::string microbatches(int count) { return std::to_string(count) + (count == 1 ? " microbatch" : " microbatches"); }

// Holds what a number must be, and one that is.
struct Need {
  std::string text;
  int nearest;
};

// Returns what the number of microbatches must be, and the nearest larger number that is; nullopt if it is right.
std::optional<Need> unmet_need(const ScheduleKind& kind, const PipelineSize& size) {
  const int count = size.num_microbatches, ranks = size.num_ranks, stages = size.num_stages();
  const std::string stages_text = " (" + counted(stages, "stage") + ")";
  if (kind.order_of_rank == one_forward_one_backward_order || kind.order_of_rank == dual_pipe_v_order) {
    if (count >= stages) return std::nullopt;
    return Need{"at least as many microbatches as stages" + stages_text, stages};
  }
  if (kind.order_of_rank == interleaved_order || kind.order_of_rank == interleaved_zero_bubble_order) {
    const int rounds = std::max(1, count / ranks);
    if (count % rounds == 0) return std::nullopt;
    return Need{"rounds of equally many microbatches, at least one for each rank (" + counted(ranks, "rank") + ")",
                (count + ranks - 1) / ranks * ranks};
  }
  return std::nullopt;
}

// Returns what the number of stages per rank must be, and the nearest number that is; nullopt if it is right.
std::optional<Need> unmet_stages(const ScheduleKind& kind, const PipelineSize& size) {
  const int per_rank = size.stages_per_rank;
  if (kind.is_single_stage) return per_rank == 1 ? std::nullopt : std::optional(Need{"exactly 1 stage per rank", 1});
  if (kind.style == StageStyle::kV)
    return per_rank == 2 ? std::nullopt : std::optional(Need{"exactly 2 stages per rank", 2});
  return per_rank >= 2 ? std::nullopt : std::optional(Need{"at least 2 stages per rank", 2});
}

}  // namespace

std::span<const ScheduleKind> schedule_kinds() { return kKinds; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kKinds)
    if (kind.order_of_rank) names.emplace_back(kind.name);
  return names;
}

const ScheduleKind& find_schedule_kind(std::string_view name) {
  const std::string wanted = upper_case(name);
  for (const ScheduleKind& kind : kKinds)
    if (upper_case(kind.name) == wanted) return kind;
  const auto names = schedule_names();
  const auto nearest = nearest_name(name, names);
  throw ConfigError("there is no pipeline schedule \"" + std::string(name) + "\"" +
                        (nearest ? "; did you mean " + *nearest + "?" : ".") + " There are " + join(names, ", "),
                    {kScheduleKey});
}

std::int64_t num_microbatches(std::int64_t local_batch_size, std::int64_t microbatch_size) {
  if (local_batch_size % microbatch_size == 0) return local_batch_size / microbatch_size;
  throw ConfigError(std::string(kBatchKey) + " (" + std::to_string(local_batch_size) + ") must be a multiple of " +
                        kMicrobatchKey + " (" + std::to_string(microbatch_size) + "); set it to " +
                        nearest_multiples(local_batch_size, microbatch_size) + ", or " + kMicrobatchKey + " to " +
                        nearest_divisors(local_batch_size, microbatch_size),
                    {kBatchKey, kMicrobatchKey});
}

void check_size(const ScheduleKind& kind, const PipelineSize& size, const SizeWords& words) {
  if (const auto stages = unmet_stages(kind, size))
    throw ConfigError(std::string(kind.name) + " needs " + stages->text + ", and each has " +
                          std::to_string(size.stages_per_rank) + "; " + words.change_stages[0] +
                          std::to_string(stages->nearest) + words.change_stages[1] + ", or take another " +
                          words.schedule,
                      {kLayersKey, kPartsKey, kScheduleKey});
  const auto need = unmet_need(kind, size);
  if (!need) return;
  throw ConfigError(std::string(kind.name) + " needs " + need->text + ", and there " +
                        (size.num_microbatches == 1 ? "is " : "are ") + microbatches(size.num_microbatches) +
                        "; for example, " + words.change_microbatches[0] + std::to_string(need->nearest) +
                        words.change_microbatches[1],
                    {kBatchKey, kMicrobatchKey, kScheduleKey});
}

PipelineSchedule make_schedule(const ScheduleKind& kind, const PipelineSize& size, const SizeWords& words) {
  check_size(kind, size, words);
  if (!kind.order_of_rank)
    throw ConfigError(std::string(kind.name) + " has no order of its own; " + words.give_order + ", or take one of " +
                          join(schedule_names(), ", "),
                      {kScheduleKey, kCsvKey});
  PipelineSchedule schedule{.num_microbatches = size.num_microbatches,
                            .rank_of_stage = place_stages(size.num_ranks, size.num_stages(), kind.style),
                            .orders = {}};
  for (int rank = 0; rank < size.num_ranks; ++rank) schedule.orders.push_back(kind.order_of_rank(size, rank));
  return schedule;
}

}  // namespace titan::pipeline
