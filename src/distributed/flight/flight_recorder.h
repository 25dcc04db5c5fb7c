// A record of the collectives that this process has started and how far they are, for the case that one of them never
// ends (the idea of PyTorch's flight recorder, here for every backend). It allocates nothing per collective.
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

namespace titan::dist {

enum class CollectiveState : std::uint8_t {
  kStarting,  // the call that starts it has not returned
  kStarted,
  kWaiting,   // a thread waits for its end
  kFinished,  // on an accelerator: handed to the device, whose stream waits for it
  kFailed
};
// "starting", "started", "waiting", "finished", "failed".
std::string_view name_of(CollectiveState state);
// Whether a thread stands in it, or stood in it when it failed.
bool holds_thread(CollectiveState state);

struct CollectiveRecord {
  static constexpr std::size_t kLabelSize = 48;
  std::uint64_t number = 0;  // in its group, from 1
  int group = -1;
  const char* kind = "";
  std::int64_t input_numel = 0, output_numel = 0;  // of this rank
  at::ScalarType dtype = at::kFloat;
  std::array<char, kLabelSize> label{};  // what it was for; of a longer one the end
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  CollectiveState state = CollectiveState::kStarting;
  TimePoint started, changed;  // `changed`: when `state` did last
};

// Which collective Work::wait() is about.
struct CollectiveTicket {
  int group = -1;            // -1: none
  std::uint64_t number = 0;  // in its group
  std::uint64_t place = 0;   // among all of this process
  const char* kind = "";
};

// One group's part of the record.
struct GroupHistory {
  std::string name;
  std::vector<int> ranks;  // global
  // Its collectives may run beside those of the other groups, on a thread of their own.
  bool runs_beside = false;
  std::uint64_t started = 0;             // how many
  std::vector<CollectiveRecord> recent;  // the last ones, the oldest first
};

// Says what the thread that trains is busy with.
struct PhaseAt {
  std::int64_t step = 0;
  Phase phase = Phase::kStart;
  TimePoint since;
};

class FlightRecorder {
 public:
  // Kept at any setting, and of each group.
  static constexpr std::size_t kFewest = 64, kRecent = 16;

  // `phases` must outlive this.
  explicit FlightRecorder(const PhaseLog& phases, Clock now = std::chrono::steady_clock::now);

  // How many of the last collectives are kept (comm.trace_buf_size), kFewest at least. What was recorded is forgotten.
  void resize(std::size_t entries);

  // All below are safe from several threads. add_group() gives the number of the group, for start().
  int add_group(std::string name, std::vector<int> ranks);
  void set_runs_beside(int group);
  CollectiveTicket start(int group, const char* kind, std::int64_t input_numel, std::int64_t output_numel,
                         at::ScalarType dtype);
  // Nothing where so many followed that it is not kept any more.
  void set_state(const CollectiveTicket& ticket, CollectiveState state);
  // The same for one that failed on the calling thread, whose stack is kept: it unwinds while others still ask.
  void fail(const CollectiveTicket& ticket);

  // "all_gather over 'fsdp'", with " (layers.3)" where it is still kept and has a label.
  std::string describe(const CollectiveTicket& ticket) const;
  // The last ones of all groups, the oldest first; their `group` is an index of groups().
  std::vector<CollectiveRecord> history() const;
  std::vector<GroupHistory> groups() const;
  // Of the first collective that failed; empty where none did.
  Stack failed_stack() const;
  // Returns what the thread that trains is busy with, or was when a collective failed.
  PhaseAt phase() const;
  // Seconds since a collective was started or ended that is not of a group that runs beside the others; since this
  // was made, where there was none.
  double seconds_since_progress() const;
  // In such collectives, starting them and waiting for them, since this was made. Those of an accelerator are waited for
  // by its streams, which is not counted.
  double seconds_spent() const;
  // Whether a thread stands in such a collective.
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
  mutable std::mutex mutex_;  // of all below
  std::vector<Group> groups_;
  std::vector<CollectiveRecord> ring_;  // place p at p % size
  std::uint64_t started_ = 0;           // of all groups
  TimePoint last_progress_;
  std::chrono::steady_clock::duration spent_{};
  Stack failed_stack_;
  std::optional<PhaseAt> failed_in_;
};

// Of this process.
FlightRecorder& flight_recorder();

// While one lives, collectives that its thread starts are for `label` ("layers.3"), which must live as long.
class CollectiveLabel {
 public:
  explicit CollectiveLabel(std::string_view label);
  ~CollectiveLabel();
  CollectiveLabel(const CollectiveLabel&) = delete;
  CollectiveLabel& operator=(const CollectiveLabel&) = delete;

 private:
  std::string_view before_;
};

}  // namespace titan::dist
