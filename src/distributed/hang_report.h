// Explains why a collective hangs: each rank reports its state, and the states are compared.
#pragma once

#include <chrono>
#include <string>

#include "distributed/failure_watch.h"

namespace titan::dist {

// Answers other ranks. Every rank's watch calls look() at each poll; when some rank has asked, it writes this rank's
// state to the store, once, and starts its dump (flight/dump.h).
class HangAnswer {
 public:
  void look(FailureBoard& board);

 private:
  bool is_given_ = false;
};

// Returns why a collective failed on this rank with `symptom`, in one line. Writes it to the store, if no rank is to
// blame as this rank's, so that the others say the same. The reason is
//   - what failure_watch.h finds: the reason that a rank wrote, or a rank that has ended, fallen silent or is
//     suspended;
//   - otherwise what the states of all ranks show (flight/find_culprit.h); the rank that writes it first prints a
//     summary to standard error;
//   - otherwise `symptom`.
// Waits `patience` for a reason, and ten times as long for the answers of ranks that run. The watches must still run.
// Never throws.
std::string diagnose_hang(FailureBoard& board, const std::string& symptom,
                          std::chrono::milliseconds patience = kFailurePatience) noexcept;

}  // namespace titan::dist
