#include "dist/failure_watch.h"

namespace titan::dist {
namespace {

constexpr const char* kKey = "titan/failure";
constexpr auto kPeriod = std::chrono::milliseconds(200);

constexpr const char* kStoreGone = "rank 0 or the launcher ended: the rendezvous store is gone";

std::string beat_key(int rank) { return "titan/beat/" + std::to_string(rank); }

std::vector<std::int64_t> beats(c10d::Store& store, int world_size) {
  std::vector<std::int64_t> out;
  for (int rank = 0; rank < world_size; ++rank) out.push_back(store.add(beat_key(rank), 0));
  return out;
}

std::string read_reason(c10d::Store& store) {
  const auto bytes = store.get(kKey);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

FailureWatch::FailureWatch(c10::intrusive_ptr<c10d::Store> store, int rank,
                           std::function<void(const std::string&)> on_failure)
    : store_(std::move(store)), rank_(rank), on_failure_(std::move(on_failure)), thread_([this] { run(); }) {}

FailureWatch::~FailureWatch() { stop(); }

void FailureWatch::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void FailureWatch::run() {
  const std::string own = "rank " + std::to_string(rank_) + ": ";
  auto last_look = std::chrono::steady_clock::now();
  while (!stopping_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (std::chrono::steady_clock::now() - last_look < kPeriod) continue;
    last_look = std::chrono::steady_clock::now();
    std::string reason;
    try {
      store_->add(beat_key(rank_), 1);
      if (!store_->check({kKey})) continue;
      reason = read_reason(*store_);
    } catch (const std::exception&) {
      reason = kStoreGone;
    }
    // A rank that failed itself reports its own error on its main thread.
    if (!stopping_ && !reason.starts_with(own)) on_failure_(reason);
    return;
  }
}

void report_failure(c10d::Store& store, int rank, const std::string& reason) noexcept {
  try {
    const std::string line = "rank " + std::to_string(rank) + ": " + reason.substr(0, reason.find('\n'));
    store.compareSet(kKey, {}, std::vector<std::uint8_t>(line.begin(), line.end()));
  } catch (...) {  // nobody left to tell
  }
}

std::string diagnose_failure(c10d::Store& store, int world_size, const std::string& symptom) noexcept {
  try {
    const auto before = beats(store, world_size);
    const auto deadline = std::chrono::steady_clock::now() + 3 * kPeriod;
    while (std::chrono::steady_clock::now() < deadline) {
      if (store.check({kKey})) return read_reason(store);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const auto after = beats(store, world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      if (before[rank] != after[rank]) continue;
      report_failure(store, rank, "ended without a word (killed, or out of memory?)");
      return read_reason(store);
    }
    return symptom;
  } catch (...) {
    return kStoreGone;
  }
}

}  // namespace titan::dist
