#include "profile/step_times.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/text.h"

namespace titan::profile {
namespace {

using Kind = TraceEvent::Kind;

constexpr std::array<std::string_view, kNumParts> kNames = {
    "forward",    "backward",   "all-gather", "reduce-scatter", "all-reduce", "messages", "optimizer", "data",
    "checkpoint", "validation", "log",        "device idle",    "other"};

bool is_collective(Part part) {
  return part == Part::kAllGather || part == Part::kReduceScatter || part == Part::kAllReduce ||
         part == Part::kMessages;
}

bool keeps_all_inside(Part part) {
  return part == Part::kValidation || part == Part::kCheckpoint || part == Part::kLog;
}

bool is_step(const TraceEvent& event) { return event.kind == Kind::kRange && event.name.starts_with("ProfilerStep#"); }

struct Interval {
  std::int64_t start, end;
};

struct Segment {
  std::int64_t start, end;
  Part part;
};

// Returns the intervals sorted and without overlaps.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::start);
  std::vector<Interval> out;
  for (const auto& next : intervals) {
    if (!out.empty() && next.start <= out.back().end) {
      out.back().end = std::max(out.back().end, next.end);
    } else {
      out.push_back(next);
    }
  }
  return out;
}

// Chooses the part that counts among those under way at once, ordered by their start; nullopt if none does.
using Choose = std::function<std::optional<Part>(const std::vector<const Segment*>& active)>;

// Assigns every moment of `windows` (merged) to the part that `choose` returns, or to `otherwise`.
std::vector<Segment> flatten(std::vector<Segment> segments, const std::vector<Interval>& windows, const Choose& choose,
                             Part otherwise) {
  std::ranges::sort(
      segments, [](const auto& a, const auto& b) { return std::pair(a.start, -a.end) < std::pair(b.start, -b.end); });
  std::vector<std::int64_t> cuts;
  for (const auto& s : segments) cuts.insert(cuts.end(), {s.start, s.end});
  for (const auto& w : windows) cuts.insert(cuts.end(), {w.start, w.end});
  std::ranges::sort(cuts);
  std::vector<Segment> out;
  std::vector<const Segment*> active;
  std::size_t next = 0, window = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const auto start = cuts[i], end = cuts[i + 1];
    if (start == end) continue;
    std::erase_if(active, [&](const auto* s) { return s->end <= start; });
    for (; next < segments.size() && segments[next].start <= start; ++next)
      if (segments[next].end > start) active.push_back(&segments[next]);
    while (window < windows.size() && windows[window].end <= start) ++window;
    if (window == windows.size() || windows[window].start > start) continue;
    out.push_back({start, end, choose(active).value_or(otherwise)});
  }
  return out;
}

std::optional<Part> last_of(const std::vector<const Segment*>& active, bool (*is_wanted)(Part)) {
  for (auto it = active.rbegin(); it != active.rend(); ++it)
    if (is_wanted((*it)->part)) return (*it)->part;
  return std::nullopt;
}

std::optional<Part> choose_of_host(const std::vector<const Segment*>& active) {
  if (const auto part = last_of(active, keeps_all_inside)) return part;
  if (const auto part = last_of(active, is_collective)) return part;
  return last_of(active, [](Part) { return true; });
}

std::optional<Part> choose_of_device(const std::vector<const Segment*>& active) {
  if (const auto part = last_of(active, [](Part p) { return !is_collective(p); })) return part;
  return last_of(active, is_collective);
}

// Returns the part that the training thread was in at every moment.
std::vector<Segment> host_segments(const std::vector<TraceEvent>& events, const std::vector<Interval>& windows) {
  const auto step = std::ranges::find_if(events, is_step);
  std::vector<Segment> marked;
  for (const auto& event : events) {
    if (event.kind != Kind::kRange || event.is_async) continue;
    const auto part = part_of(event.name);
    // On other threads (autograd's) only collectives count: what else training waits for is in its own thread's ranges.
    if (part && (event.thread == step->thread || is_collective(*part)))
      marked.push_back({event.start_ns, event.end_ns, *part});
  }
  return flatten(std::move(marked), windows, choose_of_host, Part::kOther);
}

Part part_at(const std::vector<Segment>& segments, std::int64_t time) {
  const auto after = std::ranges::upper_bound(segments, time, {}, &Segment::start);
  if (after == segments.begin()) return Part::kOther;
  const auto& segment = *std::prev(after);
  return time < segment.end ? segment.part : Part::kOther;
}

// Returns the part of each kernel.
std::vector<Segment> kernel_segments(const std::vector<TraceEvent>& events, const std::vector<Segment>& host) {
  std::unordered_map<std::uint64_t, std::int64_t> launched;  // operator -> its start
  for (const auto& event : events)
    if (event.kind != Kind::kKernel && event.correlation != 0) launched.emplace(event.correlation, event.start_ns);
  std::vector<Segment> kernels;
  for (const auto& event : events) {
    if (event.kind != Kind::kKernel) continue;
    const auto by = launched.find(event.correlation);
    const auto part = part_of(event.name);
    const bool is_of_nccl = part && is_collective(*part);
    kernels.push_back({event.start_ns, event.end_ns,
                       is_of_nccl             ? *part
                       : by != launched.end() ? part_at(host, by->second)
                                              : Part::kOther});
  }
  return kernels;
}

std::int64_t length_within(const std::vector<Interval>& intervals, const std::vector<Interval>& windows) {
  std::int64_t sum = 0;
  for (const auto& i : intervals)
    for (const auto& w : windows) sum += std::max<std::int64_t>(0, std::min(i.end, w.end) - std::max(i.start, w.start));
  return sum;
}

double milliseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Shortens the names of kernel templates (hundreds of letters) and of C++ backward passes (with their types).
std::string short_name(std::string name) {
  constexpr std::size_t kMost = 60;
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  if (name.starts_with(kNode) && name.ends_with('>')) {
    name = name.substr(kNode.size(), name.size() - kNode.size() - 1);
    if (const auto scope = name.rfind("::"); scope != std::string::npos) name = name.substr(scope + 2);
    name += "'s backward";
  }
  return name.size() <= kMost ? name : name.substr(0, kMost - 3) + "...";
}

}  // namespace

std::optional<Part> part_of(std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("reduce_scatter") || has("ReduceScatter") || has("FSDP::post_backward_reduce")) return Part::kReduceScatter;
  if (has("all_gather") || has("allgather") || has("AllGather")) return Part::kAllGather;
  if (has("all_reduce") || has("allreduce") || has("AllReduce")) return Part::kAllReduce;
  if (has("send to rank") || has("receive from rank") || has("SendRecv")) return Part::kMessages;
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end() || name == "other") return std::nullopt;
  return static_cast<Part>(found - kNames.begin());
}

void StepTimes::add(const std::vector<TraceEvent>& events) {
  std::vector<Interval> steps;
  for (const auto& event : events)
    if (is_step(event)) steps.push_back({event.start_ns, event.end_ns});
  if (steps.empty()) return;
  steps_ += std::ssize(steps);
  auto windows = merged(std::move(steps));
  const auto host = host_segments(events, windows);
  auto kernels = kernel_segments(events, host);
  std::array<std::vector<Interval>, kNumParts> under_way;
  const auto note = [&](Part part, std::int64_t start, std::int64_t end) {
    if (is_collective(part)) under_way[static_cast<std::size_t>(part)].push_back({start, end});
  };
  // The device finishes later than the host has queued the work; only the steps have queued any.
  for (const auto& kernel : kernels) windows.back().end = std::max(windows.back().end, kernel.end);
  for (const auto& kernel : kernels) note(kernel.part, kernel.start, kernel.end);
  if (kernels.empty()) {
    for (const auto& segment : host) note(segment.part, segment.start, segment.end);
    for (const auto& event : events)
      if (event.is_async) note(part_of(event.name).value_or(Part::kOther), event.start_ns, event.end_ns);
  }
  const auto whole = kernels.empty() ? host : flatten(std::move(kernels), windows, choose_of_device, Part::kDeviceIdle);
  for (const auto& segment : whole) parts_[static_cast<std::size_t>(segment.part)] += segment.end - segment.start;
  for (std::size_t i = 0; i < kNumParts; ++i) under_way_[i] += length_within(merged(std::move(under_way[i])), windows);
  add_operators(events);
}

// Adds up self times. On each thread events are nested or disjoint, so the open ones form a stack.
void StepTimes::add_operators(const std::vector<TraceEvent>& events) {
  std::map<std::uint64_t, std::vector<const TraceEvent*>> by_thread;
  for (const auto& event : events) {
    if (event.kind == Kind::kOperator && !event.is_async) by_thread[event.thread].push_back(&event);
    if (event.kind != Kind::kKernel) continue;
    auto& kernel = kernels_[event.name];
    ++kernel.calls;
    kernel.self_ns += event.end_ns - event.start_ns;
  }
  for (auto& [thread, list] : by_thread) {
    std::ranges::sort(list, [](const auto* a, const auto* b) {
      return std::pair(a->start_ns, -a->end_ns) < std::pair(b->start_ns, -b->end_ns);
    });
    std::vector<const TraceEvent*> open;
    for (const auto* event : list) {
      while (!open.empty() && open.back()->end_ns <= event->start_ns) open.pop_back();
      const auto length = event->end_ns - event->start_ns;
      if (!open.empty()) operators_[open.back()->name].self_ns -= length;
      auto& own = operators_[event->name];
      ++own.calls;
      own.self_ns += length;
      open.push_back(event);
    }
  }
}

std::int64_t StepTimes::total_ns() const { return std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0}); }

std::vector<StepTimes::Operator> StepTimes::operators() const {
  std::vector<Operator> list;
  for (const auto& [name, each] : kernels_.empty() ? operators_ : kernels_)
    list.push_back({name, each.calls, each.self_ns});
  std::ranges::stable_sort(list, std::greater(), &Operator::self_ns);
  return list;
}

std::string StepTimes::part_line(Part part) const {
  const auto exposed = ns(part), under_way = under_way_ns(part);
  auto line = fmt::format("  {:<14} {:>10.2f} ms {:>5.1f}%", kNames[static_cast<std::size_t>(part)],
                          milliseconds(exposed) / static_cast<double>(steps_), percent(exposed, total_ns()));
  if (under_way > exposed)
    line += fmt::format("   not hidden, of {:.2f} ms under way", milliseconds(under_way) / static_cast<double>(steps_));
  return line;
}

std::vector<std::string> StepTimes::lines(std::size_t top) const {
  if (steps_ == 0) return {};
  std::vector<std::string> lines = {
      fmt::format("where the time of {} went, {:.2f} ms each:", counted(steps_, "profiled step"),
                  milliseconds(total_ns()) / static_cast<double>(steps_))};
  const std::int64_t shown = steps_ * 10'000;  // less than 0.01 ms per step is not worth a line
  for (std::size_t i = 0; i < kNumParts; ++i)
    if (parts_[i] >= shown || under_way_[i] >= shown) lines.push_back(part_line(static_cast<Part>(i)));
  auto list = operators();
  if (list.size() > top) list.resize(top);
  std::vector<std::string> words;
  for (const auto& each : list)
    words.push_back(
        fmt::format("{} {:.2f} ms", short_name(each.name), milliseconds(each.self_ns) / static_cast<double>(steps_)));
  if (!words.empty())
    lines.push_back(std::string("  longest ") + (kernels_.empty() ? "operators" : "kernels") + ": " +
                    join(words, ", "));
  return lines;
}

}  // namespace titan::profile
