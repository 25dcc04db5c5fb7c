// Interface of the two data orders (torchtitan_order.h, elastic_order.h) for the batch loader: rows one after the
// other, and a position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "contract/batch_source.h"

namespace titan::data {

// The place where a row's tokens begin.
struct SampleId {
  std::int64_t sample = 0;  // its number: in the run in elastic order, in the rank in TorchTitan's
  std::int64_t source = 0;  // index in a mixture
  std::int64_t item = 0;    // index in the source: a document, a part of one, a window
  std::int64_t token = 0;   // index in the item
};

// An immutable position in the rows; any thread may read it.
class RowPosition {
 public:
  virtual ~RowPosition() = default;

  // Returns what BatchSource::state() returns at this position, after `num_batches` batches.
  virtual std::vector<StateEntry> entries(std::int64_t num_batches) const = 0;
};

// Holds the memory that a row is written to: seq_len elements each. The last two are empty if they are not wanted.
struct RowSpans {
  std::span<std::int64_t> input, label;
  std::span<std::int64_t> documents;         // Batch::documents
  std::span<std::int64_t> labels_of_sample;  // Batch::labels_of_sample
};

// Source of the rows of one rank. Not thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Writes the next row, of a window of seq_len + 1 tokens, as write_row() does. Returns false if a finite source is
  // used up. Throws DataError.
  virtual bool next_row(const RowSpans& row) = 0;

  // Returns the id of the last row written.
  virtual SampleId sample_id() const = 0;

  // Returns the position after the last row written, load_state() or restart(). Cheap, so that every batch can have
  // one.
  virtual std::shared_ptr<const RowPosition> position() const = 0;

  // The same as BatchSource's functions of these names. load_state() returns the number of batches up to the position.
  virtual std::int64_t load_state(const Values& saved) = 0;
  virtual void restart() = 0;
  virtual void check_state(const Values& saved) const = 0;

  // Number of records skipped so far.
  virtual std::int64_t bad_records() const = 0;
};

}  // namespace titan::data
