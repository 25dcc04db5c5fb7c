// Builds the parts of a run from the configuration. build_run() (run_parts.h) calls these functions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/process/processors.h"
#include "checkpoint/checkpointer.h"
#include "config/job_config.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "distributed/world.h"
#include "facts/tokenizer_facts.h"
#include "metrics/metrics_processor.h"
#include "optim/lr_schedule.h"

namespace titan::train {

// Returns debug.seed or, if it is not set, a seed that rank 0 draws for all ranks. Collective.
std::uint64_t agree_on_seed(const std::optional<std::int64_t>& configured, dist::ProcessGroup& world);

// Sets torch's determinism. Call it before the ranks connect, when NCCL reads which algorithms it may use.
void set_determinism(const config::Debug& debug);

// Sets the threads of this rank's operators: OMP_NUM_THREADS if it is set, else this rank's share of the processors
// that it may use, as far as known before the ranks meet.
void set_num_threads(std::int64_t local_world_size);

// Sets the threads again after the ranks have told each other which processors each may use: a rank that a launcher
// bound to its own processors takes all of these. Returns this rank's share. Collective.
ProcessorShare share_processors(const dist::World& world);

// True if gradients pass through float16, so that the loss must be scaled.
bool uses_float16(const config::Training& training);

// Returns the options for the metrics of a run on `device`. A GPU provides its peak FLOP/s and its memory.
metrics::MetricsOptions metrics_options(const config::JobConfig& config, const TrainSpec& spec,
                                        const dist::ParallelDims& dims, at::Device device);

// Draws the initial weights of `seed`, the same for every number of ranks.
void draw_weights(LanguageModel& model, at::Device device, std::uint64_t seed);

optim::LrSchedule build_lr_schedule(const config::LRScheduler& options, std::int64_t training_steps);
checkpoint::RunFacts run_facts(const config::JobConfig& config, const TrainSpec& spec, const TokenizerFacts& tokenizer);

}  // namespace titan::train
