// One scope for an operation of the engine: its range in profiles, the purpose of the memory that it allocates, and the
// label of the collectives that it starts.
#pragma once

#include <optional>
#include <string_view>

#include "trace/named_range.h"

namespace titan {

// The purpose of the memory that a thread allocates, for the dry run's forecast (train/dry_run/memory_estimate.h).
enum class MemoryUse {
  kOther,      // derived from the time when it is freed
  kGathered,   // full parameters, and the buffers that they are gathered into
  kReduction,  // gradients on their way to the shards
  kHost        // memory of a GPU's host
};

class Operation {
 public:
  struct Kind {
    const char* range = nullptr;  // "FSDP::all_gather"; null if profiles do not show it
    MemoryUse use = MemoryUse::kOther;
  };

  // Starts the scope, which lasts until destruction, on this thread; the innermost scope counts. `label` must live as
  // long: "layers.3".
  Operation(const Kind& kind, std::string_view label);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  std::optional<NamedRange> range_;  // "FSDP::all_gather (layers.3)"
  MemoryUse outer_use_;
  std::string_view outer_label_;
};

// Return what this thread's innermost operation has; kOther and an empty label if there is none.
MemoryUse current_memory_use();
std::string_view current_label();

}  // namespace titan
