#include "data/conversations/sample_lengths.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/process/processors.h"
#include "base/text.h"
#include "base/threads/start_thread.h"
#include "data/io/cache.h"
#include "data/io/hash.h"
#include "data/sources/token_marks.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

enum class Fate { kKept, kCut, kDropped, kUnlabeled };

struct Fitted {
  std::vector<std::int32_t> tokens;
  std::int64_t labels = 0;
  Fate fate = Fate::kKept;
  bool splits_token = false, ends_open = false;
};

// Counts the tokens that are labels of a row: all that are marked so, but for the first of the sample.
std::int64_t count_labels(const std::vector<std::int32_t>& tokens) {
  return std::ranges::count_if(tokens, [](std::int32_t token) { return is_label(token) && !begins(token); });
}

Fitted fit(const ChatSamples& samples, std::int64_t index, const LengthOptions& options) {
  ChatSamples::Sample sample = samples.read(index);
  Fitted out{.tokens = std::move(sample.tokens), .splits_token = sample.splits_token, .ends_open = sample.ends_open};
  const auto most = static_cast<std::size_t>(options.most_tokens);
  if (out.tokens.size() > most) {
    if (options.too_long == TooLong::kError)
      throw DataError(samples.where(index) + ": the conversation has " + counted(std::ssize(out.tokens), "token") +
                      ", and a row of seq_len + 1 has " + with_thousands(options.most_tokens) +
                      "; set chat.too_long = \"cut\" or \"drop\", or a longer seq_len");
    out.fate = options.too_long == TooLong::kCut ? Fate::kCut : Fate::kDropped;
    out.tokens.resize(out.fate == Fate::kCut ? most : 0);
  }
  out.labels = count_labels(out.tokens);
  if (out.labels == 0 && out.fate != Fate::kDropped) out.fate = Fate::kUnlabeled;
  if (out.labels == 0) out.tokens.clear();
  return out;
}

// Counts what the threads find. The error that is kept is that of the first sample that has one.
class Totals {
 public:
  explicit Totals(std::int64_t samples) { lengths_.tokens.resize(static_cast<std::size_t>(samples)); }

  // True if samples behind an error need no look.
  bool is_behind_error(std::int64_t index) const { return index > first_error_.load(); }

  void add(std::int64_t index, const Fitted& sample) {
    lengths_.tokens[static_cast<std::size_t>(index)] = static_cast<std::int32_t>(sample.tokens.size());
    const std::lock_guard lock(mutex_);
    lengths_.labels += sample.labels;
    lengths_.cut += sample.fate == Fate::kCut ? 1 : 0;
    lengths_.dropped += sample.fate == Fate::kDropped ? 1 : 0;
    lengths_.unlabeled += sample.fate == Fate::kUnlabeled ? 1 : 0;
    lengths_.split_tokens += sample.splits_token ? 1 : 0;
    lengths_.open_ends += sample.ends_open ? 1 : 0;
  }

  void add_bad(std::int64_t index, const std::string& why) {
    const std::lock_guard lock(mutex_);
    ++lengths_.bad_records;
    if (index < first_bad_) first_bad_ = index, why_bad_ = why;
  }

  void fail(std::int64_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (index < first_error_) first_error_ = index, error_ = std::move(error);
  }

  SampleLengths finish() {
    if (error_) std::rethrow_exception(error_);
    if (lengths_.bad_records > 0) spdlog::warn("skipped {}: {}", counted(lengths_.bad_records, "record"), why_bad_);
    return std::move(lengths_);
  }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  SampleLengths lengths_;
  std::mutex mutex_;  // guards what add() changes besides the sample's own length
  std::atomic<std::int64_t> first_error_ = kNone;
  std::exception_ptr error_;
  std::int64_t first_bad_ = kNone;
  std::string why_bad_;
};

void measure_one(const ChatSamples& samples, std::int64_t index, const LengthOptions& options, Totals& totals) {
  try {
    totals.add(index, fit(samples, index, options));
  } catch (const BadRecord& error) {
    if (options.on_bad_record == OnBadRecord::kSkip) return totals.add_bad(index, error.what());
    totals.fail(index, std::current_exception());
  } catch (...) {
    totals.fail(index, std::current_exception());
  }
}

// LengthsHeader of the file in the cache, in the byte order of the machine. The lengths follow.
struct LengthsHeader {
  std::array<char, 8> magic = {'T', 'T', 'C', 'H', 'A', 'T', 'S', '1'};
  std::uint64_t key = 0;
  std::uint64_t checksum = 0;  // of the lengths
  std::int64_t samples = 0;
  SampleCounts counts = {};
};

template <typename T>
std::span<const char> chars_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::uint64_t checksum_of(const std::vector<std::int32_t>& lengths) {
  std::uint64_t sum = 0;
  for (const std::int32_t length : lengths) sum = mix_bits(sum ^ static_cast<std::uint64_t>(length));
  return sum;
}

void write_lengths(const SampleLengths& lengths, std::uint64_t key, const fs::path& path) {
  const LengthsHeader header{
      .key = key, .checksum = checksum_of(lengths.tokens), .samples = std::ssize(lengths.tokens), .counts = lengths};
  OutputFile out(path);
  out.write(chars_of(std::span(&header, 1)));
  out.write(chars_of(std::span<const std::int32_t>(lengths.tokens)));
  out.sync();
}

// Returns nullopt if the file is not complete, or of another key.
std::optional<SampleLengths> read_lengths(const fs::path& path, std::uint64_t key, std::int64_t samples) {
  std::ifstream in(path, std::ios::binary);
  LengthsHeader header;
  const LengthsHeader expected;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof(header))) return std::nullopt;
  if (header.magic != expected.magic || header.key != key || header.samples != samples) return std::nullopt;
  SampleLengths out{header.counts};
  out.tokens.resize(static_cast<std::size_t>(samples));
  const auto bytes = static_cast<std::streamsize>(out.tokens.size() * sizeof(std::int32_t));
  if (!in.read(reinterpret_cast<char*>(out.tokens.data()), bytes) || in.peek() != EOF) return std::nullopt;
  if (checksum_of(out.tokens) != header.checksum) return std::nullopt;
  return out;
}

}  // namespace

TooLong parse_too_long(const std::string& text) {
  if (text == "error") return TooLong::kError;
  if (text == "cut") return TooLong::kCut;
  if (text == "drop") return TooLong::kDrop;
  throw ConfigError("chat.too_long: expected \"error\", \"cut\" or \"drop\", found \"" + text + "\"",
                    {"chat.too_long"});
}

std::vector<std::int32_t> fitted_tokens(const ChatSamples& samples, std::int64_t index, const LengthOptions& options) {
  return fit(samples, index, options).tokens;
}

SampleLengths measure(const ChatSamples& samples, const LengthOptions& options) {
  constexpr std::int64_t kOfOneThread = 64;
  Totals totals(samples.size());
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t i = next++; i < samples.size() && !totals.is_behind_error(i); i = next++)
      measure_one(samples, i, options, totals);
  };
  const std::int64_t wanted = std::min(own_processors().quota, samples.size() / kOfOneThread + 1);
  auto threads = start_threads(wanted - 1, work);
  work();
  for (std::thread& thread : threads) thread.join();
  return totals.finish();
}

SampleLengths cached_lengths(const ChatSamples& samples, const LengthOptions& options, const std::string& name,
                             std::uint64_t key) {
  constexpr std::int64_t kWorthKeepingSamples = 1000;
  if (samples.size() < kWorthKeepingSamples) return measure(samples, options);
  std::optional<SampleLengths> found;
  std::exception_ptr at_fault;  // the data, not the cache
  const auto make = [&] {
    try {
      found = measure(samples, options);
    } catch (...) {
      at_fault = std::current_exception();
      throw;
    }
  };
  try {
    const fs::path path = made_once(fmt::format("{}-{:016x}.lengths", name, key), [&](const fs::path& temporary) {
      spdlog::info("measuring {}; their lengths are kept in {}", counted(samples.size(), "conversation"),
                   temporary.parent_path().string());
      make();
      write_lengths(*found, key, temporary);
    });
    if (found) return *std::move(found);
    if (auto lengths = read_lengths(path, key, samples.size())) return *std::move(lengths);
    fs::remove(path);  // it is damaged; the next start makes it again
    throw DataError(path.string() + " was damaged and has been removed");
  } catch (const std::exception& error) {
    if (at_fault) std::rethrow_exception(at_fault);
    spdlog::warn("the lengths of the conversations are measured at this start, too: {}", error.what());
    return found ? *std::move(found) : measure(samples, options);
  }
}

}  // namespace titan::data
