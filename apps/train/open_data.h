// The data sets of a run, opened for one rank.
#pragma once

#include <memory>

#include "apps/train/checked_input.h"
#include "contract/batch_source.h"
#include "contract/data_facts.h"
#include "distributed/parallel_dims.h"
#include "distributed/world.h"

namespace titan {

// The two functions that open data take `batch_mesh`, which has the one axis "batch", of the ranks that read different
// batches. They are not collective. They throw DataError and ConfigError with the place of the key that names the data.

// This rank's training batches.
std::unique_ptr<BatchSource> open_training_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh,
                                               const dist::World& world, const dist::RunShape& shape);

// Returns what a checkpoint keeps of the training data and of the held-out data, to know them again. Rank 0 looks at the
// files. Collective.
DataFacts facts_of_data(const CheckedInput& input, const dist::World& world);

// What Validator takes: with validation.steps above 0 this rank's batches, with -1 those of all ranks together. Null
// where validation is not enabled.
std::unique_ptr<BatchSource> open_held_out_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh);

}  // namespace titan
