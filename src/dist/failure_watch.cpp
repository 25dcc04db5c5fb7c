#include "dist/failure_watch.h"

namespace titan::dist {
namespace {

constexpr const char* kKey = "titan/failure";
constexpr auto kPeriod = std::chrono::milliseconds(200);

std::string read_reason(c10d::Store& store) {
  const auto bytes = store.get(kKey);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

FailureWatch::FailureWatch(c10::intrusive_ptr<c10d::Store> store, int rank, std::function<void(const std::string&)> on_failure)
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
      if (!store_->check({kKey})) continue;
      reason = read_reason(*store_);
    } catch (const std::exception&) {
      reason = "the rendezvous store is gone: its rank or launcher ended";
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

std::optional<std::string> reported_failure(c10d::Store& store, std::chrono::milliseconds patience) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  try {
    do {
      if (store.check({kKey})) return read_reason(store);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (std::chrono::steady_clock::now() < deadline);
  } catch (...) {  // the store went with its rank
  }
  return std::nullopt;
}

}  // namespace titan::dist
