// Rows of batches, one after the other, with a position: the two orders in which a rank reads its data (packer.h,
// lanes.h) as the batch loader sees them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "contract/batch_source.h"

namespace titan::data {

// Where a row's tokens begin.
struct SampleId {
  std::int64_t sample = 0;  // its number: in the whole run in elastic order, of the rank in TorchTitan's
  std::int64_t source = 0;  // of a mixture
  std::int64_t item = 0;    // of the source: a document, a part of one, a window
  std::int64_t token = 0;   // of the item
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

  // Fills in all of a position but num_batches, as of the last row written or the last seek(). Cheap to make; may be
  // called later, and on another thread.
  using Mark = std::function<void(DataPosition&)>;
  virtual Mark mark() const = 0;

  // Gives num_batches of the position, which this order may know better. Throws DataError when the position cannot be
  // of this data.
  virtual std::int64_t seek(const DataPosition& position) = 0;

  // Records skipped so far.
  virtual std::int64_t bad_records() const = 0;
};

}  // namespace titan::data
