#include "data/sources/jsonl_source.h"

#include <algorithm>
#include <array>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "data/io/decompress.h"
#include "data/io/files.h"
#include "data/io/line_index.h"
#include "data/sources/json_line_files.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

const std::array<std::string, 6> kExtensions = {".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst"};

class JsonlFiles final : public TextSource {
 public:
  JsonlFiles(const fs::path& root, std::string text_key) : lines_(root), text_key_(std::move(text_key)) {}

  std::int64_t num_documents() const override { return lines_.size(); }

  std::string document(std::int64_t index) const override {
    auto object = lines_.object<nlohmann::json>(index);
    const auto text = object.find(text_key_);
    if (text == object.end() || !text->is_string()) {
      throw BadRecord(lines_.where(index) + (text == object.end() ? ": the object has no \"" : ": \"") + text_key_ +
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

  JsonLines lines_;
  std::string text_key_;
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
