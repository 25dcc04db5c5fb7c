// Rows of batches, one after the other, with a position: the two orders in which a rank reads its data
// (torchtitan_order.h, elastic_order.h) as the batch loader sees them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "contract/batch_source.h"

namespace titan::data {

// Where a row's tokens begin.
struct SampleId {
  std::int64_t sample = 0;  // its number: in the whole run in elastic order, of the rank in TorchTitan's
  std::int64_t source = 0;  // of a mixture
  std::int64_t item = 0;    // of the source: a document, a part of one, a window
  std::int64_t token = 0;   // of the item
};

// Where rows stand. Nothing changes it any more, so every thread may read it.
class RowPosition {
 public:
  virtual ~RowPosition() = default;

  // What BatchSource::state() gives at this position, after `num_batches` batches.
  virtual std::vector<StateEntry> entries(std::int64_t num_batches) const = 0;
};

// Not thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Writes the next row: `input` the first seq_len tokens of a window, `label` its last seq_len. False when a finite
  // source is used up. Throws DataError.
  virtual bool next_row(std::span<std::int64_t> input, std::span<std::int64_t> label) = 0;

  // Of the last row written.
  virtual SampleId sample_id() const = 0;

  // As of the last row written, load_state() or restart(). Cheap to make, so that every batch can have its own.
  virtual std::shared_ptr<const RowPosition> position() const = 0;

  // As BatchSource's functions of the same names. load_state() gives the number of batches up to the position.
  virtual std::int64_t load_state(const Values& saved) = 0;
  virtual void restart() = 0;
  virtual void check_state(const Values& saved) const = 0;

  // Records skipped so far.
  virtual std::int64_t bad_records() const = 0;
};

}  // namespace titan::data
