// Why a collective did not end: each rank says what it is doing, and the ranks' answers are compared.
#pragma once

#include <chrono>
#include <string>

#include "distributed/failure_watch.h"

namespace titan::dist {

// What the watch of every rank does at each look: where some rank waits in vain, it writes this rank's state to the
// store, once, and starts its dump (flight/dump.h).
class HangAnswer {
 public:
  void look(FailureBoard& board);

 private:
  bool is_given_ = false;
};

// Why a collective failed on this rank with `symptom`, in one line, written for the others where a rank is to blame:
//   - what failure_watch.h finds: the reason that a rank gave, a rank that has ended or fallen silent, one that stands
//     still;
//   - else what the states of all ranks show (flight/find_culprit.h), of which this rank then prints a summary to
//     standard error;
//   - else `symptom`.
// It waits for `patience` for a reason, and for the answers of ranks that run for ten times as long. The watches must
// still run. Never throws.
std::string diagnose_hang(FailureBoard& board, const std::string& symptom,
                          std::chrono::milliseconds patience = kFailurePatience) noexcept;

}  // namespace titan::dist
