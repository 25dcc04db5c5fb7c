#include "data/sources/tokenize.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "base/threads/start_thread.h"
#include "base/utf8.h"
#include "data/sources/indexed_shards.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

class Job {
 public:
  Job(const TextSource& source, const Tokenizer& tokenizer, const TokenizeOptions& options)
      : source_(source), tokenizer_(tokenizer), options_(options), documents_(source.num_documents()) {
    if (options_.shard_documents == 0) options_.shard_documents = default_shard_documents(documents_);
    TITAN_CHECK(options_.shard_documents > 0 && options_.workers > 0, "shards and workers must be positive");
    progress_.shards = (documents_ + options_.shard_documents - 1) / options_.shard_documents;
  }

  TokenizeProgress run(const std::function<bool(const TokenizeProgress&)>& report) {
    agree_with_earlier_run();
    for (std::int64_t shard = 0; shard < progress_.shards; ++shard) {
      if (fs::exists(prefix_of(shard) + ".idx")) {
        ++progress_.kept_shards;
      } else {
        missing_.push_back(shard);
      }
    }
    progress_.finished_shards = progress_.kept_shards;
    const auto workers = std::min<std::int64_t>(options_.workers, std::ssize(missing_));
    running_ = workers;
    const auto body = [this] { work(); };
    auto threads = start_threads(workers, body);
    if (threads.empty() && workers > 0) threads.push_back(start_thread("tokenizes", body));
    {
      const std::lock_guard lock(mutex_);
      running_ -= workers - std::ssize(threads);
    }
    watch(report);
    for (auto& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return progress_;
  }

 private:
  std::string prefix_of(std::int64_t shard) const {
    char tail[32];
    std::snprintf(tail, sizeof(tail), "-%05d-of-%05d", static_cast<int>(shard), static_cast<int>(progress_.shards));
    return options_.output.string() + tail;
  }

  void agree_with_earlier_run() const {
    if (progress_.shards > 99'999) {
      throw DataError(std::to_string(progress_.shards) + " shards are too many: give more documents to each");
    }
    const nlohmann::ordered_json plan = {{"source", escape_invalid_utf8(options_.source)},
                                         {"documents", documents_},
                                         {"tokenizer", escape_invalid_utf8(options_.tokenizer)},
                                         {"vocab_size", tokenizer_.vocab_size()},
                                         {"append_bos", options_.append_bos},
                                         {"append_eos", options_.append_eos},
                                         {"shard_documents", options_.shard_documents}};
    const fs::path path = options_.output.string() + ".json";
    auto with_files = plan;
    if (!options_.files.empty()) with_files["files"] = to_json(options_.files);
    const std::string text = with_files.dump(1) + "\n";
    if (options_.output.has_parent_path()) fs::create_directories(options_.output.parent_path());
    // Overwrites the plan as long as no shard is finished: nothing can contradict it yet.
    if (!fs::exists(path) || !has_finished_shards()) {
      write_file_atomically(path, text);
    } else {
      agree_with(path, plan);
    }
  }

  void agree_with(const fs::path& path, const nlohmann::ordered_json& plan) const {
    const auto there = try_parse_json<nlohmann::ordered_json>(read_file(path));
    const std::string remedy = ". Choose another --output, or remove " + options_.output.string() + "-*.{bin,idx}";
    if (const std::string other = differences(there, plan); !other.empty())
      throw DataError(path.string() +
                      " says that the shards of this name are of other data or other options: " + other + remedy);
    if (!there.contains("files") || options_.files.empty()) return;
    const std::string changed = changed_files(path, there["files"]);
    if (changed.empty()) return;
    if (!options_.allow_changed_files)
      throw DataError(path.string() + ": the data have changed since its shards were made: " + changed + remedy +
                      "; or keep them as they are with --allow-changed-files");
    spdlog::warn("{}: the data have changed since its shards were made, which are kept: {}", path.string(), changed);
  }

  std::string changed_files(const fs::path& path, const nlohmann::ordered_json& there) const {
    try {
      return file_differences(file_facts_from_json(there), options_.files);
    } catch (const nlohmann::json::exception& error) {
      throw DataError(path.string() + " is damaged: " + error.what());
    }
  }

  bool has_finished_shards() const {
    const fs::path folder = options_.output.has_parent_path() ? options_.output.parent_path() : ".";
    const std::string begin = options_.output.filename().string() + "-";
    return std::ranges::any_of(fs::directory_iterator(folder), [&](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with(begin) && entry.path().extension() == ".idx";
    });
  }

  // Returns "documents: 150 there, 1 here; ...", or "" if there are none.
  static std::string differences(const nlohmann::ordered_json& there, const nlohmann::ordered_json& plan) {
    if (!there.is_object()) return "it is not a JSON object";
    std::vector<std::string> lines;
    for (const auto& [key, here] : plan.items()) {
      const std::string was = there.contains(key) ? there[key].dump() : "nothing";
      if (was != here.dump()) lines.push_back(key + ": " + was + " there, " + here.dump() + " here");
    }
    return join(lines, "; ");
  }

  void watch(const std::function<bool(const TokenizeProgress&)>& report) {
    std::unique_lock lock(mutex_);
    bool done = false;
    while (!done) {
      done = changed_.wait_for(lock, std::chrono::seconds(1), [this] { return running_ == 0; });
      const TokenizeProgress now = progress_;
      lock.unlock();
      if (!report(now)) stop_ = true;
      lock.lock();
    }
  }

  void work() {
    try {
      for (std::size_t next = next_++; next < missing_.size() && !stop_; next = next_++) make_shard(missing_[next]);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  void make_shard(std::int64_t shard) {
    IndexedShardWriter writer(prefix_of(shard), token_type_for(tokenizer_.vocab_size()));
    const std::int64_t begin = shard * options_.shard_documents;
    const std::int64_t end = std::min(begin + options_.shard_documents, documents_);
    std::vector<std::int32_t> ids;
    for (std::int64_t document = begin; document < end; ++document) {
      if (stop_) return;
      if (!encode(document, ids)) continue;
      writer.add_document(ids);
      const std::lock_guard lock(mutex_);
      ++progress_.documents;
      progress_.tokens += std::ssize(ids);
    }
    writer.finish();
    const std::lock_guard lock(mutex_);
    ++progress_.finished_shards;
  }

  // Returns false if the record is skipped.
  bool encode(std::int64_t document, std::vector<std::int32_t>& ids) {
    ids.clear();
    std::string text;
    try {
      text = source_.document(document);
    } catch (const BadRecord& error) {
      if (options_.on_bad_record == OnBadRecord::kError) throw;
      spdlog::warn("skipped a record: {}", error.what());
      const std::lock_guard lock(mutex_);
      ++progress_.bad_records;
      return false;
    }
    tokenizer_.encode_marked(text, {.bos = options_.append_bos, .eos = options_.append_eos}, ids);
    return true;
  }

  const TextSource& source_;
  const Tokenizer& tokenizer_;
  TokenizeOptions options_;
  const std::int64_t documents_;
  std::vector<std::int64_t> missing_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  TokenizeProgress progress_;  // shards and kept_shards are set before the threads start
  std::int64_t running_ = 0;
  std::exception_ptr error_;
};

}  // namespace

std::int64_t default_shard_documents(std::int64_t num_documents) {
  return std::clamp<std::int64_t>((num_documents + 63) / 64, 16, 100'000);
}

TokenizeProgress tokenize_to_shards(const TextSource& source, const Tokenizer& tokenizer,
                                    const TokenizeOptions& options,
                                    const std::function<bool(const TokenizeProgress&)>& report) {
  return Job(source, tokenizer, options).run(report);
}

}  // namespace titan::data
