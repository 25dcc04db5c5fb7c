// Where the train loop gets its batches from. Implemented in data/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "contract/batch.h"

namespace titan {

// A part of a data position, under its own key in a checkpoint.
struct StateEntry {
  std::string key;  // begins with "dataloader."; a value of one rank alone has the rank, or what it stands for, in it
  Value value;
  bool pickled = false;   // a checkpoint stores the bytes of its pickle, as TorchTitan's do of a data loader
  bool optional = false;  // a checkpoint without it can be loaded
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next microbatch; blocks until it is ready. Nothing when a finite source is used up. Throws DataError.
  virtual std::optional<Batch> next() = 0;

  // Where this rank stands in its data, as of the last batch that next() returned (batches prefetched beyond it do not
  // count). The keys are those that load_state() reads, whatever the position is. Safe to call between two next()
  // calls, from the thread that calls next().
  virtual std::vector<StateEntry> state() const = 0;

  // Continues after a saved position: the batches that follow are those that would have followed it. A position between
  // two microbatches of a step cannot be continued. `saved`: the values, not pickled, of those of this rank's keys that
  // the checkpoint has; others are ignored. Throws DataError or CheckpointError when the position is not one of this
  // data or cannot be read.
  virtual void load_state(const Values& saved) = 0;

  // Begins again, as if no batch had been returned.
  virtual void restart() = 0;

  // Optional keys of a checkpoint from which check_state() tells, before anything is loaded, that its position is not
  // one for this source to continue. `saved`: those of them that the checkpoint has. Throws CheckpointError.
  virtual std::vector<std::string> probes() const { return {}; }
  virtual void check_state(const Values& /*saved*/) const {}

  // Records that were skipped for the batches returned, since this object was made; nothing where a bad record is an
  // error.
  virtual std::optional<std::int64_t> bad_records() const { return std::nullopt; }

  // What there is to read, for the log: "text ./corpus has 473 documents"; "" where it is not known.
  virtual std::string description() const { return {}; }
};

}  // namespace titan
