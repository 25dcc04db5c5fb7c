#include "distributed/flight/dump.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "base/process/phase.h"
#include "base/process/program_name.h"
#include "base/process/step_work.h"
#include "base/stack/stack.h"
#include "base/threads/start_thread.h"
#include "distributed/flight/flight_recorder.h"

namespace titan::dist {
namespace {

struct Dumps {
  std::mutex mutex;
  std::condition_variable changed;
  std::filesystem::path file;
  bool is_writing = false;
};

Dumps& dumps() {
  static auto* const all = new Dumps;  // never freed: a thread that hangs on the disk may still use it
  return *all;
}

// Writes the file atomically. Does not fsync, to depend on the disk no longer than necessary.
void write_dump(const std::filesystem::path& file, const std::string& text) {
  std::error_code ignored;  // the stream reports it
  std::filesystem::create_directories(file.parent_path(), ignored);
  const auto temporary = std::filesystem::path(file).concat(".tmp");
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (stream) std::filesystem::rename(temporary, file, ignored);
  if (!stream || ignored) fmt::print(stderr, "{}: cannot write {}\n", program_name(), file.string());
}

// Returns a word, "send_to_rank_3" for a send.
std::string kind_of(const CollectiveRecord& record) {
  std::string kind = record.kind;
  if (record.peer >= 0) kind += words_before_peer(record.kind) + std::to_string(record.peer);
  std::ranges::replace(kind, ' ', '_');
  return kind;
}

std::string collectives_text() {
  const auto now = std::chrono::steady_clock::now();
  const auto groups = flight_recorder().groups();
  std::string text = "\n# Groups\n";
  for (const auto& group : groups) {
    const auto sent = std::accumulate(group.sent.begin(), group.sent.end(), std::uint64_t{0});
    const auto received = std::accumulate(group.received.begin(), group.received.end(), std::uint64_t{0});
    text += fmt::format("{}: {} collectives started{}; ranks {}{}\n", group.name, group.started,
                        sent + received > 0 ? fmt::format(", {} sends, {} receives", sent, received) : "",
                        fmt::join(group.ranks, " "), group.runs_beside ? "; on a thread of its own" : "");
  }
  text +=
      "\n# Collectives, the last one at the end: group, number in it (of a send or receive: among those from the one "
      "rank to the other), kind, elements in and out, dtype, what for, step (phase), state, seconds since its start "
      "and "
      "since it is in this state\n";
  for (const auto& record : flight_recorder().history()) {
    text += fmt::format("{} {} {} {} {} {} [{}] step {} ({}) {} {:.3f} {:.3f}\n",
                        groups.at(static_cast<std::size_t>(record.group)).name, record.number, kind_of(record),
                        record.input_numel, record.output_numel, c10::getDtypeNames(record.dtype).first,
                        record.label.data(), record.step, name_of(record.phase), name_of(record.state),
                        seconds_between(record.started, now), seconds_between(record.changed, now));
  }
  return text;
}

std::string stacks_text() {
  std::string text;
  if (const Stack failed = flight_recorder().failed_stack(); failed.size > 0)
    text += "\n# Where the collective that failed was waited for, innermost call first\n" + to_text(failed);
  text += "\n# Threads, innermost call first\n";
  for (const auto& thread : capture_thread_stacks()) {
    text += fmt::format("\nthread {} ({})\n", thread.tid, thread.name);
    text += thread.stack ? to_text(*thread.stack) : "  does not answer: it blocks signals, or hangs in the system\n";
  }
  return text;
}

}  // namespace

void set_dump_file(std::filesystem::path file) {
  const std::lock_guard lock(dumps().mutex);
  dumps().file = std::move(file);
}

std::filesystem::path dump_file() {
  const std::lock_guard lock(dumps().mutex);
  return dumps().file;
}

std::string dump_text(const std::string& why) {
  const auto now = std::chrono::steady_clock::now();
  const PhaseAt at = flight_recorder().phase();
  const std::string work = step_work().of_pipeline(at.phase);
  return "# " + why + "\n# " +
         fmt::format("step {}, in {} for {:.3f} s{}\n", at.step, name_of(at.phase), seconds_between(at.since, now),
                     work.empty() ? "" : ", " + work) +
         collectives_text() + stacks_text();
}

void start_dump(const std::string& why) {
  Dumps& all = dumps();
  const std::lock_guard lock(all.mutex);
  if (all.file.empty() || all.is_writing) return;
  all.is_writing = true;
  const auto write = [&all, why, file = all.file] {
    write_dump(file, dump_text(why));
    const std::lock_guard guard(all.mutex);
    all.is_writing = false;
    all.changed.notify_all();
  };
  try {
    start_thread("writes " + all.file.string(), write).detach();
  } catch (const Error& error) {  // without a file the reason is still found and told
    all.is_writing = false;
    fmt::print(stderr, "{}: {}\n", program_name(), error.what());
  }
}

bool wait_for_dump(std::chrono::milliseconds patience) {
  Dumps& all = dumps();
  std::unique_lock lock(all.mutex);
  return all.changed.wait_for(lock, patience, [&all] { return !all.is_writing; });
}

}  // namespace titan::dist
