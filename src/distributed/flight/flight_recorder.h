// Records the collectives that this process has started and their progress, to diagnose one that hangs (the idea of
// PyTorch's flight recorder, here for every backend). Allocates nothing per collective. Sends and receives are recorded
// apart: the ranks of a group start the same collectives, but not the same sends.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  kFinished,  // on an accelerator: its stream waits for it, and the host went on
  kFailed,
  kQueued  // the same, and the device has not finished it; only in what history() and groups() return
};
// Returns "starting", "started", "waiting", "finished", "failed" or "queued".
std::string_view name_of(CollectiveState state);
// True if a thread is blocked in it, or was when it failed.
bool holds_thread(CollectiveState state);
// Returns " to rank " for the kind "send", " from rank " for "receive".
std::string words_before_peer(std::string_view kind);

struct CollectiveRecord {
  static constexpr std::size_t kLabelSize = 48;
  // From 1. Of a collective: in its group. Of a send or receive: among those from the one rank to the other in the
  // group, so that it is the same at both ends.
  std::uint64_t number = 0;
  int group = -1;
  const char* kind = "";
  int peer = -1;  // global rank at the other end of a "send" or "receive"; -1: a collective
  std::int64_t input_numel = 0, output_numel = 0;  // this rank's
  at::ScalarType dtype = at::kFloat;
  std::array<char, kLabelSize> label{};  // its purpose; a long label keeps its end
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  bool on_device = false;  // of an accelerator's tensors
  CollectiveState state = CollectiveState::kStarting;
  TimePoint started, changed;  // `changed`: when `state` last changed
};

// The record of one group.
struct GroupHistory {
  std::string name;
  std::vector<int> ranks;  // global
  // True if its collectives may run beside other groups', on a separate thread.
  bool runs_beside = false;
  std::uint64_t started = 0;                  // number of collectives started
  std::vector<CollectiveRecord> recent;       // the last collectives, oldest first
  std::vector<CollectiveRecord> transfers;    // the last sends and receives, oldest first
  std::vector<std::uint64_t> sent, received;  // number started, to and from each of `ranks`
  // The first collective that the device has not finished; nullopt if there is none, or none is known of.
  std::optional<CollectiveRecord> queued;
};

// The training thread's step and phase.
struct PhaseAt {
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  TimePoint since;
};

class FlightRecorder {
 public:
  // The fewest operations kept at any setting, and the numbers of collectives and of transfers kept per group.
  static constexpr std::size_t kFewest = 64, kRecent = 16, kRecentTransfers = 64;

  // `phases` must outlive this.
  explicit FlightRecorder(const PhaseLog& phases, Clock now = std::chrono::steady_clock::now);

  // Sets how many of the last collectives are kept (comm.trace_buf_size), at least kFewest. Clears the history.
  void resize(std::size_t entries);

  // All methods below are thread-safe. add_group() returns the group's number, for start().
  int add_group(std::string name, std::vector<int> ranks);
  void set_runs_beside(int group);
  // Lets the recorder ask how many of the group's collectives the device has not finished. Once the group has sent or
  // received, it asks no more: backends count these apart.
  void set_device_queue(int group, std::function<std::int64_t()> num_unfinished);
  CollectiveTicket start(int group, const char* kind, std::int64_t input_numel, std::int64_t output_numel,
                         at::ScalarType dtype, bool on_device = false);
  // The same for a transfer to or from a member of the group; `member` is its index in the group's ranks.
  CollectiveTicket start_send(int group, int member, std::int64_t numel, at::ScalarType dtype);
  CollectiveTicket start_receive(int group, int member, std::int64_t numel, at::ScalarType dtype);
  // Does nothing if the record of the collective was already overwritten.
  void set_state(const CollectiveTicket& ticket, CollectiveState state);
  // Marks a collective as failed on the calling thread, and keeps its stack: the thread unwinds before other ranks
  // ask.
  void fail(const CollectiveTicket& ticket);

  // Returns "all_gather over 'fsdp'" or "receive from rank 2 over 'pp'", with " (layers.3)" if it is still kept and has
  // a label.
  std::string describe(const CollectiveTicket& ticket) const;
  // Returns the last operations of all groups, oldest first; their `group` is an index of groups().
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
    std::array<CollectiveRecord, kRecent> recent;              // number n at n % kRecent
    std::uint64_t transferred = 0;                             // number of transfers started
    std::array<CollectiveRecord, kRecentTransfers> transfers;  // the n-th, from 1, at n % kRecentTransfers
    std::vector<std::uint64_t> sent, received;
    std::function<std::int64_t()> num_unfinished;  // null if nothing tells
  };

  CollectiveTicket start_transfer(int group, const char* kind, int member, std::uint64_t number,
                                  std::pair<std::int64_t, std::int64_t> numels, at::ScalarType dtype);
  // Writes the record of a started operation to its group's slot and to the ring.
  void keep(const CollectiveTicket& ticket, std::int64_t input_numel, std::int64_t output_numel, at::ScalarType dtype,
            bool on_device = false);
  // Returns for each group how many of its last collectives the device has not finished, as far as it is known.
  std::vector<std::int64_t> count_unfinished() const;
  std::vector<CollectiveRecord> kept_in_ring() const;
  // Returns the record in the ticket's slot: of this operation, or of a later one.
  const CollectiveRecord& slot_of(const CollectiveTicket& ticket) const;
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
