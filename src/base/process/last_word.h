// Lets a process that is about to end tell the other ranks why. A thread that has a connection to them, the teller,
// polls for it; the thread that ends the process, perhaps in a signal handler, waits for it, for a limited time.
#pragma once

#include <optional>
#include <string>

namespace titan {

struct Ending {
  enum class Cause : int {
    kCrash,  // `number` is a fatal signal
    kAsked,  // `number` is a signal that asked to stop, at once
    kExit    // `number` is the status that something passed to exit()
  };
  Cause cause;
  int number;
};

// Registers that there is a teller; false: it has ended, and nobody waits for it.
void expect_teller(bool is_there);
bool is_teller_expected();

// Waits until the teller has told of `ending`, at most five seconds. Returns at once if there is none, or if the teller
// itself calls. The first ending is told. Async-signal-safe.
void let_it_be_told(Ending ending);

// Returns what is about to end this process; nullopt if nothing is. Callable from any thread.
std::optional<Ending> ending_under_way();
// The same for the teller: the caller's id is recorded, so that the thread does not wait for itself.
std::optional<Ending> ending_to_tell();
// The teller calls it once the other ranks have been told.
void ending_is_told();

}  // namespace titan
