#include "data/sources/jsonl_source.h"

#include <algorithm>
#include <array>
#include <deque>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/io/decompress.h"
#include "data/io/files.h"
#include "data/io/line_index.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLineScanBytes = 1 << 20;
const std::array<std::string, 6> kExtensions = {".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst"};

// Returns `json` with 0 in place of NaN, Infinity and -Infinity, which Python writes as numbers. The 0 is padded to the
// same length, so that errors keep their column.
std::string without_not_finite(std::string json) {
  bool in_string = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    if (in_string && json[at] == '\\') {
      ++at;
    } else if (json[at] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (json.compare(at, word.size(), word) != 0) continue;
        std::string number = "0";
        number.resize(word.size(), ' ');
        json.replace(at, word.size(), number);
        break;
      }
    }
  }
  return json;
}

class JsonlFiles final : public TextSource {
 public:
  JsonlFiles(const fs::path& root, std::string text_key) : text_key_(std::move(text_key)) {
    for (const fs::path& path : list_jsonl_files(root)) {
      const fs::path content = is_compressed(path) ? decompressed_copy(path) : path;
      shards_.push_back({.path = path, .content = content, .file = InputFile(content)});
    }
    find_lines();
    if (starts_.empty()) throw DataError("no dataset in " + root.string() + ": it has no line that is not blank");
  }

  std::int64_t num_documents() const override { return static_cast<std::int64_t>(starts_.size()); }

  std::string document(std::int64_t index) const override {
    const Shard& shard = shard_of(static_cast<std::size_t>(index));
    const std::string line = read_line(shard, static_cast<std::size_t>(index));
    nlohmann::json object = parse(shard, line, static_cast<std::size_t>(index));
    const auto text = object.find(text_key_);
    if (text == object.end() || !text->is_string()) {
      throw BadRecord(where(shard, static_cast<std::size_t>(index)) +
                      (text == object.end() ? ": the object has no \"" : ": \"") + text_key_ +
                      (text == object.end() ? "\"" + other_strings(object) : "\" is not a string") +
                      ". Every line must be a JSON object with its document in \"" + text_key_ +
                      "\"; another field is named by dataset_text_key (of the commands --text-key)");
    }
    return std::move(text->get_ref<std::string&>());
  }

 private:
  // Returns the names of strings that may hold the document: " (its strings: content, title)".
  static std::string other_strings(const nlohmann::json& object) {
    constexpr std::size_t kMost = 4;
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items())
      if (value.is_string() && names.size() < kMost) names.push_back(name);
    return names.empty() ? "" : " (its strings: " + join(names, ", ") + ")";
  }

  struct Shard {
    fs::path path;        // as it was given
    fs::path content;     // decompressed
    InputFile file;       // open content
    std::size_t end = 0;  // end of its lines in starts_
  };

  void find_lines() {
    std::vector<IndexedFile> files;
    for (const Shard& shard : shards_) files.push_back({shard.content, &shard.file});
    index_ = index_lines(files);
    for (std::size_t i = 0; i < shards_.size(); ++i) shards_[i].end = index_.ends[i];
    starts_ = index_.starts;
  }

  const Shard& shard_of(std::size_t index) const {
    TITAN_CHECK(index < starts_.size(), "document " + std::to_string(index) + " of " + std::to_string(starts_.size()));
    return *std::ranges::upper_bound(shards_, index, {}, &Shard::end);
  }

  // Returns the line without its newline and the blank lines up to the next document.
  std::string read_line(const Shard& shard, std::size_t index) const {
    const std::uint64_t end = index + 1 < shard.end ? starts_[index + 1] : shard.file.size();
    std::string line(end - starts_[index], '\0');
    shard.file.read_at(starts_[index], line);
    if (const std::size_t newline = line.find('\n'); newline != std::string::npos) line.resize(newline);
    return line;
  }

  nlohmann::json parse(const Shard& shard, const std::string& line, std::size_t index) const {
    // Checks first: the parser's message for invalid UTF-8 is unclear.
    if (const auto bad = find_invalid_utf8(line)) {
      throw BadRecord(where(shard, index) + ": byte " + std::to_string(*bad) + " of the line is not valid UTF-8");
    }
    try {
      nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (object.is_discarded()) object = nlohmann::json::parse(without_not_finite(line));
      if (object.is_object()) return object;
      throw BadRecord(where(shard, index) + ": expected a JSON object, found " + object.type_name());
    } catch (const nlohmann::json::exception& error) {
      const JsonError problem = explain_json_error(error.what());
      throw BadRecord(where(shard, index, problem.column) + ": not a JSON object: " + problem.reason);
    }
  }

  // Returns "file:line", or "file:line:column" for a 1-based column of the record; blanks may precede the record.
  // Counts lines from the start of the file: for messages only.
  std::string where(const Shard& shard, std::size_t index, std::int64_t column = 0) const {
    std::int64_t line = 1;
    std::uint64_t line_start = 0;
    std::string chunk;
    for (std::uint64_t at = 0; at < starts_[index]; at += chunk.size()) {
      chunk.resize(std::min<std::uint64_t>(kLineScanBytes, starts_[index] - at));
      shard.file.read_at(at, chunk);
      line += std::ranges::count(chunk, '\n');
      if (const auto last = chunk.rfind('\n'); last != std::string::npos) line_start = at + last + 1;
    }
    const std::string place = shard.path.string() + ":" + std::to_string(line);
    if (column == 0) return place;
    return place + ":" + std::to_string(static_cast<std::int64_t>(starts_[index] - line_start) + column);
  }

  std::string text_key_;
  std::vector<Shard> shards_;  // in order
  LineIndex index_;
  std::span<const std::uint64_t> starts_;  // start of every document, in its file
};

}  // namespace

bool is_named_as_jsonl(const fs::path& path) {
  const std::string name = path.filename().string();
  return std::ranges::any_of(kExtensions, [&](const std::string& extension) { return name.ends_with(extension); });
}

std::vector<fs::path> list_jsonl_files(const fs::path& path) { return list_files(path, kExtensions); }

std::unique_ptr<TextSource> open_jsonl_files(const fs::path& path, const std::string& text_key) {
  return std::make_unique<JsonlFiles>(path, text_key);
}

void prepare_jsonl_files(const fs::path& path) {
  const auto paths = list_jsonl_files(path);
  if (std::ranges::any_of(paths, is_compressed)) return;
  std::deque<InputFile> open;
  std::vector<IndexedFile> files;
  std::uint64_t bytes = 0;
  for (const fs::path& each : paths) {
    files.push_back({each, &open.emplace_back(each)});
    bytes += open.back().size();
  }
  if (bytes >= kWorthKeeping) index_lines(files);
}

}  // namespace titan::data
