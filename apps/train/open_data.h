// Opens the datasets of a run for one rank.
#pragma once

#include <memory>
#include <vector>

#include "apps/train/checked_input.h"
#include "contract/batch_source.h"
#include "contract/data_facts.h"
#include "contract/evaluation_task.h"
#include "distributed/parallel_dims.h"
#include "distributed/world.h"

namespace titan {

// `batch_mesh` has one axis, "batch": the ranks that read different batches. The two functions that open data are not
// collective. They throw DataError and ConfigError with the location of the key that names the data.

// Returns this rank's training batches.
std::unique_ptr<BatchSource> open_training_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh,
                                               const dist::World& world, const dist::RunShape& shape);

// Returns the facts by which a checkpoint recognizes the training and held-out data later. Rank 0 looks at the files.
// Collective.
DataFacts facts_of_data(const CheckedInput& input, const dist::World& world);

// Returns the batches for Validator: this rank's if validation.steps is above 0, those of all ranks together if it is
// -1. null if validation is not enabled.
std::unique_ptr<BatchSource> open_held_out_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh);

// Reads and encodes the tasks of evaluation.tasks, all of them on every rank; rank 0 warns of texts that are too long.
// Not collective.
std::vector<EvaluationTask> open_evaluation_tasks(const CheckedInput& input);

}  // namespace titan
