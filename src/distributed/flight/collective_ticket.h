// Refers to one collective in the flight recorder.
#pragma once

#include <cstdint>

namespace titan::dist {

// Identifies the collective of a Work.
struct CollectiveTicket {
  int group = -1;            // -1: none
  std::uint64_t number = 0;  // in its group
  std::uint64_t place = 0;   // among all collectives of this process
  const char* kind = "";
};

}  // namespace titan::dist
