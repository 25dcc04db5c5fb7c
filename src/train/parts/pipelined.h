// Pipeline parallelism in the train step: a batch goes through the stages of the model in microbatches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "contract/loss.h"
#include "contract/model.h"
#include "distributed/process_group.h"
#include "nn/module.h"
#include "pipeline/pipeline_schedule.h"
#include "train/parts/split_rows.h"
#include "train/step/forward_backward.h"

namespace titan::train {

// A parameter that a stage of this rank and one of another rank share, such as a tied output projection. Each rank has
// a copy, and their gradients are summed.
struct SharedParameter {
  nn::NamedParameter parameter;
  int peer;  // rank of the pipeline's group
};

// Holds what a run of stages needs besides the model.
struct PipelineParts {
  pipeline::PipelineSchedule schedule;  // with communication
  dist::ProcessGroup& group;            // the ranks that have the stages
  // By this rank's stages in ascending order: the modules that fully_shard was applied to.
  std::vector<std::vector<nn::Module*>> modules;
  std::vector<SharedParameter> shared;
  std::optional<RowSplit> split;  // of rows that ranks share; nullopt if each has whole rows
  dist::ProcessGroup& batches;    // the ranks that read different batches, for the same stages
  bool keeps_gathered = true;     // parameters stay gathered for all microbatches
  std::int64_t rows = 1;          // of a microbatch
  std::int64_t dim = 0;           // of hidden states
  std::int64_t tokens_per = 1;  // a rank's hidden states between blocks are those of one of so many parts of its tokens
  at::ScalarType dtype;         // of hidden states
};

// Returns the implementation that runs this rank's stages of `model`, which pipeline stages were kept of. The ranks of
// the group read the same batches. The rank with the last stage has the sum of losses and counts the labels; the others
// return 0 for both. Gradients are reduced once, after the last microbatch. `model` must outlive it.
std::unique_ptr<ForwardBackward> make_pipelined(LanguageModel& model, at::Device device, LossFunction loss,
                                                PipelineParts parts);

}  // namespace titan::train
