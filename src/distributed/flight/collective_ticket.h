// Refers to one collective, send or receive in the flight recorder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace titan::dist {

// Identifies the operation of a Work.
struct CollectiveTicket {
  int group = -1;            // -1: none
  std::uint64_t number = 0;  // as in its CollectiveRecord
  std::uint64_t place = 0;   // among all operations of this process
  const char* kind = "";
  int peer = -1;         // of a send or receive: the global rank at its other end
  std::size_t slot = 0;  // in its group's records
};

}  // namespace titan::dist
