#pragma once

// The trace counts what a process asked of its devices, and writes it when the process ends, by _exit() too.

#include <cstddef>

namespace titan_null {

// Counts one launch of a kernel, by its mangled name, which must live as long as the process. Returns how many launches
// there were, this one included.
long count_launch(const char* kernel);

// Counts one call that is neither a launch nor a wait.
void count_call(const char* function);

// Counts one call in which the host waits for a device.
void count_wait(const char* function);

// Keeps the highest number of bytes that a device had.
void note_memory(int device, std::size_t bytes);

// Writes the file, if a folder is set and a device was used; the last call wins.
void write_trace();

}  // namespace titan_null
