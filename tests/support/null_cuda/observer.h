#pragma once

// An observer is a library that sees what a process asks of the null CUDA runtime (NULL_CUDA_OBSERVER). It is opened at
// the first launch, when torch is loaded, and not in processes that use no device. These functions are all it may call.

namespace titan_null {

// Counts a launch, a copy or a fill of the calling thread. The first of a process opens the observer, if there is one.
void note_work();

// Calls the observer's function for the end.
void end_observer();

}  // namespace titan_null

extern "C" {

// Returns how many launches, copies and fills the calling thread has asked for. Collectives do not count.
long titan_null_work_of_thread();

// Keeps a function, to be called when the process ends, by _exit() too, and maybe twice.
void titan_null_call_at_end(void (*function)());
}
