#include "data/sources/json_line_files.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "base/utf8.h"
#include "data/io/decompress.h"
#include "data/sources/jsonl_source.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kPlaceScanBytes = 1 << 16;

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

}  // namespace

JsonLines::JsonLines(const fs::path& root) {
  for (const fs::path& path : list_jsonl_files(root)) {
    const fs::path content = is_compressed(path) ? decompressed_copy(path) : path;
    files_.push_back({.path = path, .content = content, .file = InputFile(content)});
  }
  std::vector<IndexedFile> files;
  for (const File& each : files_) files.push_back({each.content, &each.file});
  index_ = index_lines(files);
  for (std::size_t i = 0; i < files_.size(); ++i) files_[i].end = index_.ends[i];
  starts_ = index_.starts;
  if (starts_.empty()) throw DataError("no dataset in " + root.string() + ": it has no line that is not blank");
}

const JsonLines::File& JsonLines::file_of(std::size_t line) const {
  TITAN_CHECK(line < starts_.size(), "line " + std::to_string(line) + " of " + std::to_string(starts_.size()));
  return *std::ranges::upper_bound(files_, line, {}, &File::end);
}

// Returns the line without its newline and the blank lines up to the next one.
std::string JsonLines::read(std::size_t line) const {
  const File& file = file_of(line);
  const std::uint64_t end = line + 1 < file.end ? starts_[line + 1] : file.file.size();
  std::string text(end - starts_[line], '\0');
  file.file.read_at(starts_[line], text);
  if (const std::size_t newline = text.find('\n'); newline != std::string::npos) text.resize(newline);
  return text;
}

template <typename Json>
Json JsonLines::object(std::int64_t line) const {
  const auto number = static_cast<std::size_t>(line);
  const std::string text = read(number);
  // Checks first: the parser's message for invalid UTF-8 is unclear.
  if (const auto bad = find_invalid_utf8(text))
    throw BadRecord(where(line) + ": byte " + std::to_string(*bad) + " of the line is not valid UTF-8");
  try {
    Json object = try_parse_json<Json>(text);
    if (object.is_discarded()) object = parse_json<Json>(without_not_finite(text));
    if (object.is_object()) return object;
    throw BadRecord(where(line) + ": expected a JSON object, found " + object.type_name());
  } catch (const nlohmann::json::exception& error) {
    const JsonError problem = explain_json_error(error.what());
    throw BadRecord(place(number, problem.column) + ": not a JSON object: " + problem.reason);
  }
}

template nlohmann::json JsonLines::object<nlohmann::json>(std::int64_t) const;
template nlohmann::ordered_json JsonLines::object<nlohmann::ordered_json>(std::int64_t) const;

std::string JsonLines::where(std::int64_t line) const { return place(static_cast<std::size_t>(line), 0); }

// Returns "file:line", or "file:line:column" for a 1-based column of the record; blanks may precede the record.
// Counts lines from the start of the file, once for all records: for messages only.
std::string JsonLines::place(std::size_t index, std::int64_t column) const {
  const File& file = file_of(index);
  const std::lock_guard lock(places_->mutex);
  places_->chunks.resize(files_.size());
  auto& chunks = places_->chunks[static_cast<std::size_t>(&file - files_.data())];
  if (chunks.empty()) chunks.emplace_back();
  std::string chunk;
  const auto add = [&](Chunk to, std::uint64_t at, std::uint64_t end) {
    chunk.resize(end - at);
    file.file.read_at(at, chunk);
    to.newlines += std::ranges::count(chunk, '\n');
    if (const auto last = chunk.rfind('\n'); last != std::string::npos) to.line_start = at + last + 1;
    return to;
  };
  const std::uint64_t before = starts_[index] / kPlaceScanBytes * kPlaceScanBytes;
  for (std::uint64_t end = 0; (end = chunks.size() * kPlaceScanBytes) <= before;)
    chunks.push_back(add(chunks.back(), end - kPlaceScanBytes, end));
  const auto [newlines, line_start] = add(chunks[before / kPlaceScanBytes], before, starts_[index]);
  const std::string place = file.path.string() + ":" + std::to_string(newlines + 1);
  if (column == 0) return place;
  return place + ":" + std::to_string(static_cast<std::int64_t>(starts_[index] - line_start) + column);
}

}  // namespace titan::data
