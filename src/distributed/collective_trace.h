// Records the collectives that rank 0 starts, to compare schedules and find where they diverge.
//
// With TITAN_TRACE_COLLECTIVES=FILE in its environment, the process of global rank 0 writes one line for every
// started collective: kind, group, elements in, elements out, dtype ("all_gather fsdp 262144 524288 bfloat16").
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace titan::dist {

// Appends a line if tracing is on and `global_rank` is 0. Throws Error if the file cannot be written. Thread-safe.
void trace_collective(int global_rank, const char* kind, const std::string& group, std::int64_t input_numel,
                      std::int64_t output_numel, at::ScalarType dtype);

}  // namespace titan::dist
