#include "distributed/flight/flight_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trace/operation.h"

namespace titan::dist {
namespace {

constexpr std::array<std::string_view, 5> kStateNames = {"starting", "started", "waiting", "finished", "failed"};

// Truncates a label at its start: the end of a module's name says more.
void copy_label(std::string_view label, std::array<char, CollectiveRecord::kLabelSize>& out) {
  if (label.size() >= out.size()) label.remove_prefix(label.size() - (out.size() - 1));
  std::memcpy(out.data(), label.data(), label.size());
  out[label.size()] = '\0';
}

}  // namespace

std::string_view name_of(CollectiveState state) { return kStateNames[static_cast<std::size_t>(state)]; }

bool holds_thread(CollectiveState state) {
  return state == CollectiveState::kStarting || state == CollectiveState::kWaiting || state == CollectiveState::kFailed;
}

FlightRecorder::FlightRecorder(const PhaseLog& phases, Clock now)
    : phases_(phases), now_(std::move(now)), ring_(kFewest), last_progress_(now_()) {}

void FlightRecorder::resize(std::size_t entries) {
  const std::lock_guard lock(mutex_);
  ring_ = std::vector<CollectiveRecord>(std::max(entries, kFewest));
  started_ = 0;
}

int FlightRecorder::add_group(std::string name, std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({.name = std::move(name), .ranks = std::move(ranks), .recent = {}});
  return static_cast<int>(groups_.size()) - 1;
}

void FlightRecorder::set_runs_beside(int group) {
  const std::lock_guard lock(mutex_);
  groups_.at(static_cast<std::size_t>(group)).runs_beside = true;
}

CollectiveTicket FlightRecorder::start(int group, const char* kind, std::int64_t input_numel, std::int64_t output_numel,
                                       at::ScalarType dtype) {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  Group& own = groups_.at(static_cast<std::size_t>(group));
  const CollectiveTicket ticket{group, ++own.started, started_++, kind};
  CollectiveRecord& record = own.recent[ticket.number % kRecent];
  record = {.number = ticket.number,
            .group = group,
            .kind = kind,
            .input_numel = input_numel,
            .output_numel = output_numel,
            .dtype = dtype,
            .label = {},
            .step = phases_.step(),
            .phase = phases_.current(),
            .state = CollectiveState::kStarting,
            .started = now,
            .changed = now};
  copy_label(current_label(), record.label);
  ring_[ticket.place % ring_.size()] = record;
  if (!own.runs_beside) last_progress_ = now;
  return ticket;
}

FlightRecorder::Group& FlightRecorder::group_of(const CollectiveTicket& ticket) {
  return groups_[static_cast<std::size_t>(ticket.group)];
}

void FlightRecorder::change(const CollectiveTicket& ticket, CollectiveState state, TimePoint when) {
  const auto is_it = [&](const CollectiveRecord& r) { return r.group == ticket.group && r.number == ticket.number; };
  for (auto* record : {&group_of(ticket).recent[ticket.number % kRecent], &ring_[ticket.place % ring_.size()]}) {
    if (!is_it(*record)) continue;
    record->state = state;
    record->changed = when;
  }
}

void FlightRecorder::set_state(const CollectiveTicket& ticket, CollectiveState state) {
  if (ticket.group < 0) return;
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  const Group& group = group_of(ticket);
  const CollectiveRecord& before = group.recent[ticket.number % kRecent];
  if (!group.runs_beside && before.number == ticket.number && holds_thread(before.state))
    spent_ += now - before.changed;
  change(ticket, state, now);
  if (state == CollectiveState::kFinished && !group.runs_beside) last_progress_ = now;
}

void FlightRecorder::fail(const CollectiveTicket& ticket) {
  if (ticket.group < 0) return;
  const Stack stack = capture_stack();
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  change(ticket, CollectiveState::kFailed, now);
  if (failed_stack_.size > 0) return;
  failed_stack_ = stack;
  failed_in_ = PhaseAt{phases_.step(), phases_.current(), phases_.since()};
}

// After a failure, the training thread has left its phase by the time that other ranks ask.
PhaseAt FlightRecorder::phase() const {
  const std::lock_guard lock(mutex_);
  return failed_in_.value_or(PhaseAt{phases_.step(), phases_.current(), phases_.since()});
}

std::string FlightRecorder::describe(const CollectiveTicket& ticket) const {
  if (ticket.group < 0) return ticket.kind;
  const std::lock_guard lock(mutex_);
  const Group& group = groups_[static_cast<std::size_t>(ticket.group)];
  std::string text = std::string(ticket.kind) + " over '" + group.name + "'";
  const auto& record = group.recent[ticket.number % kRecent];
  if (record.number == ticket.number && record.label[0] != '\0') text += " (" + std::string(record.label.data()) + ")";
  return text;
}

std::vector<CollectiveRecord> FlightRecorder::history() const {
  const std::lock_guard lock(mutex_);
  std::vector<CollectiveRecord> records;
  const std::uint64_t kept = std::min<std::uint64_t>(started_, ring_.size());
  for (std::uint64_t place = started_ - kept; place < started_; ++place) records.push_back(ring_[place % ring_.size()]);
  return records;
}

std::vector<GroupHistory> FlightRecorder::groups() const {
  const std::lock_guard lock(mutex_);
  std::vector<GroupHistory> histories;
  for (const Group& group : groups_) {
    GroupHistory history{group.name, group.ranks, group.runs_beside, group.started, {}};
    const std::uint64_t kept = std::min<std::uint64_t>(group.started, kRecent);
    for (std::uint64_t n = group.started - kept + 1; n <= group.started; ++n)
      history.recent.push_back(group.recent[n % kRecent]);
    histories.push_back(std::move(history));
  }
  return histories;
}

Stack FlightRecorder::failed_stack() const {
  const std::lock_guard lock(mutex_);
  return failed_stack_;
}

double FlightRecorder::seconds_spent() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(spent_).count();
}

double FlightRecorder::seconds_since_progress() const {
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  return seconds_between(last_progress_, now);
}

bool FlightRecorder::holds_training_thread() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(groups_, [](const Group& group) {
    return !group.runs_beside && std::ranges::any_of(group.recent, [](const CollectiveRecord& record) {
      return record.number > 0 && holds_thread(record.state);
    });
  });
}

FlightRecorder& flight_recorder() {
  static auto* const recorder = new FlightRecorder(phase_log());  // never freed: threads that end late may still record
  return *recorder;
}

}  // namespace titan::dist
