// The kinds of tasks, by name: entries of evaluation.tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/keys/values/evaluation_tasks.h"
#include "contract/evaluation_task.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Reads and encodes a task. `max_length`: tokens that the model takes at once. `limit`: take only so many items. Not
// collective. Throws DataError, which names file, line and field, for files that cannot be read or records that do not
// fit.
EvaluationTask open_task(const config::TaskEntry& entry, const Tokenizer& tokenizer, std::int64_t max_length,
                         std::optional<std::int64_t> limit);

}  // namespace titan::data
