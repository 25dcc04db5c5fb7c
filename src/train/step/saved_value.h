// What a part of the run must find again after a resume, so that it goes on as if nothing had happened: a value under a
// key of its own, which older checkpoints lack and other programs do not ask for.
#pragma once

#include <string>

#include "base/value.h"

namespace titan::train {

class SavedValue {
 public:
  virtual ~SavedValue() = default;
  // "titan.<name>"
  virtual std::string key() const = 0;
  // The same on every rank. May wait for the device.
  virtual Value value() const = 0;
  // Null: the checkpoint has none, begin anew. Throws CheckpointError for a value that value() did not make.
  virtual void restore(const Value* saved) = 0;
};

}  // namespace titan::train
