// Where the train loop gets its batches from. Implemented in data/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/batch.h"

namespace titan {

// Where one lane of the elastic order stands (data/order/elastic_order.h).
struct LanePosition {
  std::int64_t lane = 0;
  std::int64_t windows = 0;           // that it has given: one a step
  std::vector<std::int64_t> cursors;  // for each source: items begun, tokens used of the last one
};

// The lanes that a rank draws for, and what their order depends on.
struct ElasticPosition {
  std::int64_t seed = 0;
  std::int64_t num_lanes = 0;           // of all ranks: sequences of a global batch
  std::vector<std::int64_t> num_items;  // of each source
  std::vector<LanePosition> lanes;      // this rank's, in order
};

// Where a rank stands in its data, as of the last batch that next() returned (batches prefetched beyond it do not
// count). The fields are those of TorchTitan's data loader state, from which its checkpoints are made.
struct DataPosition {
  std::int64_t num_batches = 0;            // batches returned so far
  std::int64_t sample_idx = 0;             // documents of this rank's block that were tokenized since the last re-loop
  std::vector<std::int64_t> token_buffer;  // tokens of those documents that are not in a returned batch yet
  // In elastic order, which has no sample_idx and token_buffer. A position between two microbatches of a step cannot be
  // continued.
  std::optional<ElasticPosition> elastic = {};
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next microbatch; blocks until it is ready. Nothing when a finite source is used up. Throws DataError.
  virtual std::optional<Batch> next() = 0;

  // Safe to call between two next() calls, from the thread that calls next().
  virtual DataPosition position() const = 0;

  // Continues after `position`: the batches that follow are those that would have followed it. A default
  // position is the beginning.
  virtual void seek(const DataPosition& position) = 0;

  // Records that were skipped for the batches returned, since this object was made; nothing where a bad record is an
  // error.
  virtual std::optional<std::int64_t> bad_records() const { return std::nullopt; }

  // What there is to read, for the log: "text ./corpus has 473 documents"; "" where it is not known.
  virtual std::string description() const { return {}; }
};

}  // namespace titan
