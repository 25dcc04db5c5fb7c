// How each part of a run is made from the configuration. build_run() (run_parts.h) calls these in its order.
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
#include "optim/adamw.h"
#include "optim/lr_schedule.h"

namespace titan::train {

// debug.seed, or one that rank 0 draws and all ranks take, so that a run without a seed is still one run. Collective.
std::uint64_t agree_on_seed(const std::optional<std::int64_t>& configured, dist::ProcessGroup& world);

// Sets torch's determinism. Call it before the ranks connect: NCCL reads then which algorithms it may take.
void set_determinism(const config::Debug& debug);

// Threads of this rank's operators: OMP_NUM_THREADS when it is set, else this rank's share of the processors that it
// may use, as far as it can tell before the ranks meet.
void set_num_threads(std::int64_t local_world_size);

// The same where ranks have told each other which processors each may use: those that a launcher bound to processors of
// their own take all of these. Returns this rank's share. Collective.
ProcessorShare share_processors(const dist::World& world);

// Whether gradients pass through float16, so that the loss must be scaled.
bool uses_float16(const config::Training& training);

// For the metrics of a run on `device`, whose peak FLOP/s and memory are asked of it.
metrics::MetricsOptions metrics_options(const config::JobConfig& config, const TrainSpec& spec,
                                        const dist::ParallelDims& dims, at::Device device);

// Built on meta, sharded, materialized on the meshes' device. Its weights wait for draw_weights() or a checkpoint,
// which makes a second of drawing needless for a model of 100 million. Throws InternalError naming a parameter that is
// still on meta.
std::unique_ptr<LanguageModel> build_model(const TrainSpec& spec, std::optional<std::int64_t> document_end,
                                           const ParallelContext& context);

// The initial weights of `seed`, the same at every number of ranks.
void draw_weights(LanguageModel& model, at::Device device, std::uint64_t seed);

optim::AdamW build_optimizer(LanguageModel& model, const config::Optimizer& options);
optim::LrSchedule build_lr_schedule(const config::LRScheduler& options, std::int64_t training_steps);
checkpoint::RunFacts run_facts(const config::JobConfig& config, const TrainSpec& spec, const TokenizerFacts& tokenizer);

}  // namespace titan::train
