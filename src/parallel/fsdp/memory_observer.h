// Interface for whoever looks at the memory that fully_shard alone writes: gathered parameters and shards' gradients.
#pragma once

#include "nn/module.h"
#include "parallel/fsdp/fsdp_param.h"

namespace titan::fsdp {

// Called on the thread that runs forward or backward, within the stream that has just written or is about to write.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;

  // The parameter was gathered: nothing writes FsdpParam::gathered_values() until frees(). It may be the shard itself.
  virtual void gathered(const FsdpParam& param) = 0;
  virtual void frees(const FsdpParam& param) = 0;
  // The gradient of the shard is about to be written: added to, if there is one.
  virtual void adds_gradient(const FsdpParam& param) = 0;
  // It was written: nothing in fully_shard touches it until the next adds_gradient().
  virtual void added_gradient(const FsdpParam& param) = 0;
};

// Sets the observer of every group at and below `module`; null: none. It must outlive all forwards and backwards.
void set_memory_observer(nn::Module& module, MemoryObserver* observer);

}  // namespace titan::fsdp
