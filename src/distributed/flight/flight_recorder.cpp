#include "distributed/flight/flight_recorder.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "trace/operation.h"

namespace titan::dist {
namespace {

constexpr std::array<std::string_view, 6> kStateNames = {"starting", "started", "waiting",
                                                         "finished", "failed",  "queued"};

// Truncates a label at its start: the end of a module's name says more.
void copy_label(std::string_view label, std::array<char, CollectiveRecord::kLabelSize>& out) {
  if (label.size() >= out.size()) label.remove_prefix(label.size() - (out.size() - 1));
  out[label.copy(out.data(), out.size() - 1)] = '\0';
}

bool is_of(const CollectiveRecord& record, const CollectiveTicket& ticket) {
  return record.group == ticket.group && record.number == ticket.number && record.peer == ticket.peer &&
         record.kind == ticket.kind;
}

// Returns the last of `started` records, of which the n-th, from 1, is at n % N; oldest first.
template <std::size_t N>
std::vector<CollectiveRecord> in_order(const std::array<CollectiveRecord, N>& records, std::uint64_t started) {
  std::vector<CollectiveRecord> last;
  const std::uint64_t kept = std::min<std::uint64_t>(started, N);
  for (std::uint64_t n = started - kept + 1; n <= started; ++n) last.push_back(records[n % N]);
  return last;
}

// Marks the last operations of each group on its device, as many as `unfinished` says.
void mark_queued(std::vector<CollectiveRecord>& records, std::vector<std::int64_t> unfinished) {
  for (auto& record : std::views::reverse(records)) {
    if (!record.on_device || record.state == CollectiveState::kStarting) continue;
    if (unfinished[static_cast<std::size_t>(record.group)]-- <= 0) continue;
    if (record.state == CollectiveState::kFinished) record.state = CollectiveState::kQueued;
  }
}

}  // namespace

std::string words_before_peer(std::string_view kind) { return kind == "send" ? " to rank " : " from rank "; }

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
  const std::vector<std::uint64_t> none(ranks.size());
  groups_.push_back({.name = std::move(name),
                     .ranks = std::move(ranks),
                     .recent = {},
                     .transfers = {},
                     .sent = none,
                     .received = none,
                     .num_unfinished = nullptr});
  return static_cast<int>(groups_.size()) - 1;
}

void FlightRecorder::set_runs_beside(int group) {
  const std::lock_guard lock(mutex_);
  groups_.at(static_cast<std::size_t>(group)).runs_beside = true;
}

void FlightRecorder::set_device_queue(int group, std::function<std::int64_t()> num_unfinished) {
  const std::lock_guard lock(mutex_);
  groups_.at(static_cast<std::size_t>(group)).num_unfinished = std::move(num_unfinished);
}

CollectiveTicket FlightRecorder::start(int group, const char* kind, std::int64_t input_numel, std::int64_t output_numel,
                                       at::ScalarType dtype, bool on_device) {
  const std::lock_guard lock(mutex_);
  Group& own = groups_.at(static_cast<std::size_t>(group));
  const auto number = ++own.started;
  const CollectiveTicket ticket{group, number, started_++, kind, -1, number % kRecent};
  keep(ticket, input_numel, output_numel, dtype, on_device);
  return ticket;
}

CollectiveTicket FlightRecorder::start_send(int group, int member, std::int64_t numel, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  auto& sent = groups_.at(static_cast<std::size_t>(group)).sent.at(static_cast<std::size_t>(member));
  return start_transfer(group, "send", member, ++sent, {numel, 0}, dtype);
}

CollectiveTicket FlightRecorder::start_receive(int group, int member, std::int64_t numel, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  auto& received = groups_.at(static_cast<std::size_t>(group)).received.at(static_cast<std::size_t>(member));
  return start_transfer(group, "receive", member, ++received, {0, numel}, dtype);
}

CollectiveTicket FlightRecorder::start_transfer(int group, const char* kind, int member, std::uint64_t number,
                                                std::pair<std::int64_t, std::int64_t> numels, at::ScalarType dtype) {
  Group& own = groups_[static_cast<std::size_t>(group)];
  const int peer = own.ranks[static_cast<std::size_t>(member)];
  const CollectiveTicket ticket{group, number, started_++, kind, peer, ++own.transferred % kRecentTransfers};
  keep(ticket, numels.first, numels.second, dtype);
  return ticket;
}

void FlightRecorder::keep(const CollectiveTicket& ticket, std::int64_t input_numel, std::int64_t output_numel,
                          at::ScalarType dtype, bool on_device) {
  const TimePoint now = now_();
  Group& own = groups_[static_cast<std::size_t>(ticket.group)];
  CollectiveRecord& record = ticket.peer < 0 ? own.recent[ticket.slot] : own.transfers[ticket.slot];
  record = {.number = ticket.number,
            .group = ticket.group,
            .kind = ticket.kind,
            .peer = ticket.peer,
            .input_numel = input_numel,
            .output_numel = output_numel,
            .dtype = dtype,
            .label = {},
            .step = phases_.step(),
            .phase = phases_.current(),
            .on_device = on_device,
            .state = CollectiveState::kStarting,
            .started = now,
            .changed = now};
  copy_label(current_label(), record.label);
  ring_[ticket.place % ring_.size()] = record;
  if (!own.runs_beside) last_progress_ = now;
}

const CollectiveRecord& FlightRecorder::slot_of(const CollectiveTicket& ticket) const {
  const Group& group = groups_[static_cast<std::size_t>(ticket.group)];
  return ticket.peer < 0 ? group.recent[ticket.slot] : group.transfers[ticket.slot];
}

void FlightRecorder::change(const CollectiveTicket& ticket, CollectiveState state, TimePoint when) {
  Group& group = groups_[static_cast<std::size_t>(ticket.group)];
  auto& in_group = ticket.peer < 0 ? group.recent[ticket.slot] : group.transfers[ticket.slot];
  for (auto* record : {&in_group, &ring_[ticket.place % ring_.size()]}) {
    if (!is_of(*record, ticket)) continue;
    record->state = state;
    record->changed = when;
  }
}

void FlightRecorder::set_state(const CollectiveTicket& ticket, CollectiveState state) {
  if (ticket.group < 0) return;
  const TimePoint now = now_();
  const std::lock_guard lock(mutex_);
  const Group& group = groups_[static_cast<std::size_t>(ticket.group)];
  const CollectiveRecord& before = slot_of(ticket);
  if (!group.runs_beside && is_of(before, ticket) && holds_thread(before.state)) spent_ += now - before.changed;
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
  std::string text = ticket.kind;
  if (ticket.peer >= 0) text += words_before_peer(ticket.kind) + std::to_string(ticket.peer);
  text += " over '" + group.name + "'";
  const auto& record = slot_of(ticket);
  if (is_of(record, ticket) && record.label[0] != '\0') text += " (" + std::string(record.label.data()) + ")";
  return text;
}

// The devices are asked without the lock: what answers may be slow.
std::vector<std::int64_t> FlightRecorder::count_unfinished() const {
  std::vector<std::function<std::int64_t()>> questions;
  {
    const std::lock_guard lock(mutex_);
    for (const Group& group : groups_)
      questions.push_back(group.transferred > 0 ? std::function<std::int64_t()>() : group.num_unfinished);
  }
  std::vector<std::int64_t> counts;
  for (const auto& question : questions) counts.push_back(question ? question() : 0);
  return counts;
}

std::vector<CollectiveRecord> FlightRecorder::kept_in_ring() const {
  std::vector<CollectiveRecord> records;
  const std::uint64_t kept = std::min<std::uint64_t>(started_, ring_.size());
  for (std::uint64_t place = started_ - kept; place < started_; ++place) records.push_back(ring_[place % ring_.size()]);
  return records;
}

std::vector<CollectiveRecord> FlightRecorder::history() const {
  auto unfinished = count_unfinished();
  const std::lock_guard lock(mutex_);
  unfinished.resize(groups_.size());
  auto records = kept_in_ring();
  mark_queued(records, std::move(unfinished));
  return records;
}

std::vector<GroupHistory> FlightRecorder::groups() const {
  auto unfinished = count_unfinished();
  const std::lock_guard lock(mutex_);
  unfinished.resize(groups_.size());
  auto all = kept_in_ring();
  mark_queued(all, unfinished);
  std::vector<GroupHistory> histories;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    auto recent = in_order(group.recent, group.started);
    mark_queued(recent, unfinished);
    const auto queued = std::ranges::find_if(all, [&](const CollectiveRecord& record) {
      return record.group == static_cast<int>(i) && record.state == CollectiveState::kQueued;
    });
    histories.push_back({group.name, group.ranks, group.runs_beside, group.started, std::move(recent),
                         in_order(group.transfers, group.transferred), group.sent, group.received,
                         queued == all.end() ? std::nullopt : std::optional(*queued)});
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
  const auto holds = [](const CollectiveRecord& record) { return record.number > 0 && holds_thread(record.state); };
  return std::ranges::any_of(groups_, [&](const Group& group) {
    return !group.runs_beside &&
           (std::ranges::any_of(group.recent, holds) || std::ranges::any_of(group.transfers, holds));
  });
}

FlightRecorder& flight_recorder() {
  static auto* const recorder = new FlightRecorder(phase_log());  // never freed: threads that end late may still record
  return *recorder;
}

}  // namespace titan::dist
