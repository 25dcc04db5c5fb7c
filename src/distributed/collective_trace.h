// A record of the collectives that rank 0 starts, for comparing schedules and finding where ranks part ways.
//
// With TITAN_TRACE_COLLECTIVES=FILE in its environment, the process of global rank 0 writes one line for every started
// collective: kind, group, elements in, elements out, dtype ("all_gather fsdp 262144 524288 bfloat16").
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace titan::dist {

// Appends a line where tracing is on and `global_rank` is 0. Throws Error when the file cannot be written. Safe from
// several threads.
void trace_collective(int global_rank, const char* kind, const std::string& group, std::int64_t input_numel,
                      std::int64_t output_numel, at::ScalarType dtype);

}  // namespace titan::dist
