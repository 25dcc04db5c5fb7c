// Where the train loop gets its batches from. Implemented in data/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/batch.h"

namespace titan {

// Where a rank stands in its data, as of the last batch that next() returned (batches prefetched beyond it do not
// count). The fields are those of TorchTitan's data loader state, from which its checkpoints are made.
struct DataPosition {
  std::int64_t num_batches = 0;            // batches returned so far
  std::int64_t sample_idx = 0;             // documents of this rank's block that were tokenized since the last re-loop
  std::vector<std::int64_t> token_buffer;  // tokens of those documents that are not in a returned batch yet
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next microbatch; blocks until it is ready. Nothing when a finite source is used up. Throws DataError.
  virtual std::optional<Batch> next() = 0;

  // Safe to call between two next() calls, from the thread that calls next().
  virtual DataPosition position() const = 0;

  // Continues after `position`: the batches that follow are those that would have followed it. Call before next().
  virtual void seek(const DataPosition& position) = 0;
};

}  // namespace titan
