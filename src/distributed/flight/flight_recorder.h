// Records the collectives that this process has started and their progress, to diagnose one that hangs (the idea of
// PyTorch's flight recorder, here for every backend). Allocates nothing per collective.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/process/phase.h"
#include "base/stack/stack.h"
#include "distributed/flight/collective_ticket.h"

namespace titan::dist {

enum class CollectiveState : std::uint8_t {
  kStarting,  // the call that starts it has not returned
  kStarted,
  kWaiting,   // a thread waits for its end
  kFinished,  // on an accelerator: queued on the device, whose stream waits for it
  kFailed
};
// Returns "starting", "started", "waiting", "finished" or "failed".
std::string_view name_of(CollectiveState state);
// True if a thread is blocked in it, or was when it failed.
bool holds_thread(CollectiveState state);

struct CollectiveRecord {
  static constexpr std::size_t kLabelSize = 48;
  std::uint64_t number = 0;  // in its group, from 1
  int group = -1;
  const char* kind = "";
  std::int64_t input_numel = 0, output_numel = 0;  // this rank's
  at::ScalarType dtype = at::kFloat;
  std::array<char, kLabelSize> label{};  // its purpose; a long label keeps its end
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  CollectiveState state = CollectiveState::kStarting;
  TimePoint started, changed;  // `changed`: when `state` last changed
};

// The record of one group.
struct GroupHistory {
  std::string name;
  std::vector<int> ranks;  // global
  // True if its collectives may run beside other groups', on a separate thread.
  bool runs_beside = false;
  std::uint64_t started = 0;             // number of collectives started
  std::vector<CollectiveRecord> recent;  // the last collectives, oldest first
};

// The training thread's step and phase.
struct PhaseAt {
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  TimePoint since;
};

class FlightRecorder {
 public:
  // The fewest collectives kept at any setting, and the number kept per group.
  static constexpr std::size_t kFewest = 64, kRecent = 16;

  // `phases` must outlive this.
  explicit FlightRecorder(const PhaseLog& phases, Clock now = std::chrono::steady_clock::now);

  // Sets how many of the last collectives are kept (comm.trace_buf_size), at least kFewest. Clears the history.
  void resize(std::size_t entries);

  // All methods below are thread-safe. add_group() returns the group's number, for start().
  int add_group(std::string name, std::vector<int> ranks);
  void set_runs_beside(int group);
  CollectiveTicket start(int group, const char* kind, std::int64_t input_numel, std::int64_t output_numel,
                         at::ScalarType dtype);
  // Does nothing if the record of the collective was already overwritten.
  void set_state(const CollectiveTicket& ticket, CollectiveState state);
  // Marks a collective as failed on the calling thread, and keeps its stack: the thread unwinds before other ranks
  // ask.
  void fail(const CollectiveTicket& ticket);

  // Returns "all_gather over 'fsdp'", with " (layers.3)" if it is still kept and has a label.
  std::string describe(const CollectiveTicket& ticket) const;
  // Returns the last collectives of all groups, oldest first; their `group` is an index of groups().
  std::vector<CollectiveRecord> history() const;
  std::vector<GroupHistory> groups() const;
  // Returns the stack of the first collective that failed; empty if none did.
  Stack failed_stack() const;
  // Returns the training thread's phase, or its phase when a collective failed.
  PhaseAt phase() const;
  // Returns the seconds since a collective last started or ended, except in groups that run beside the others; since
  // construction if there was none.
  double seconds_since_progress() const;
  // Returns the seconds spent starting such collectives and waiting for them, since construction. Waits of an
  // accelerator's streams are not counted.
  double seconds_spent() const;
  // True if a thread is blocked in such a collective.
  bool holds_training_thread() const;

 private:
  struct Group {
    std::string name;
    std::vector<int> ranks;
    bool runs_beside = false;
    std::uint64_t started = 0;
    std::array<CollectiveRecord, kRecent> recent;  // number n at n % kRecent
  };

  Group& group_of(const CollectiveTicket& ticket);
  void change(const CollectiveTicket& ticket, CollectiveState state, TimePoint when);

  const PhaseLog& phases_;
  Clock now_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<Group> groups_;
  std::vector<CollectiveRecord> ring_;  // place p at p % size
  std::uint64_t started_ = 0;           // in all groups
  TimePoint last_progress_;
  std::chrono::steady_clock::duration spent_{};
  Stack failed_stack_;
  std::optional<PhaseAt> failed_in_;
};

// Returns the recorder of this process.
FlightRecorder& flight_recorder();

}  // namespace titan::dist
