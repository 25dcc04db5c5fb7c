// Source of the train loop's batches. Implemented in data/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "contract/batch.h"

namespace titan {

// A part of a data position, stored under its own key in a checkpoint.
struct StateEntry {
  std::string key;  // begins with "dataloader."; if the value is not common to all ranks, names its rank or lane
  Value value;
  bool pickled = false;   // a checkpoint stores it as a pickle, like the data loader state of TorchTitan's checkpoints
  bool optional = false;  // a checkpoint without it can be loaded
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Returns the next microbatch; blocks until it is ready. nullopt when a finite source is used up. Throws DataError.
  virtual std::optional<Batch> next() = 0;

  // Returns this rank's position in its data after the last batch that next() returned (prefetched
  // batches do not count). Its keys are the ones that load_state() reads, at any position. May be
  // called between two next() calls, from the same thread.
  virtual std::vector<StateEntry> state() const = 0;

  // Resumes from a saved position: next() returns the batches that would have followed it. A
  // position between two microbatches of a step cannot be resumed. `saved`: the unpickled values of
  // this rank's keys that the checkpoint has; other keys are ignored. Throws DataError or
  // CheckpointError if the position does not belong to this data or cannot be read.
  virtual void load_state(const Values& saved) = 0;

  // Starts over, as if no batch had been returned.
  virtual void restart() = 0;

  // probes() lists the optional checkpoint keys from which check_state() can reject a position before anything
  // is loaded. `saved`: the values of those keys that the checkpoint has. check_state() throws CheckpointError.
  virtual std::vector<std::string> probes() const { return {}; }
  virtual void check_state(const Values& /*saved*/) const {}

  // Returns the number of records skipped for the batches returned, since construction; nullopt if
  // a bad record is an error.
  virtual std::optional<std::int64_t> bad_records() const { return std::nullopt; }

  // Describes the data for the log: "text ./corpus has 473 documents"; empty if unknown.
  virtual std::string description() const { return {}; }
};

}  // namespace titan
