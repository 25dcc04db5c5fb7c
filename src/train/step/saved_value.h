// State that a component saves in checkpoints under its own key, so that a resumed run continues unchanged. Older
// checkpoints lack the key, and other programs do not read it.
#pragma once

#include <string>

#include "base/value.h"

namespace titan::train {

class SavedValue {
 public:
  virtual ~SavedValue() = default;
  // Returns "titan.<name>".
  virtual std::string key() const = 0;
  // Returns the same on every rank. May wait for the device.
  virtual Value value() const = 0;
  // `saved` is null if the checkpoint has no such value: begin anew. Throws CheckpointError for a value that value()
  // did not make.
  virtual void restore(const Value* saved) = 0;
};

}  // namespace titan::train
