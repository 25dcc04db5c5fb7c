#include "data/registry.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "data/indexed_shards.h"

namespace titan::data {
namespace {

struct DatasetKind {
  const char* name;
  std::unique_ptr<TextSource> (*open)(const std::filesystem::path& path);
};

constexpr DatasetKind kDatasets[] = {
    {"text", open_text_files},
    {"jsonl", open_jsonl_files},
    // TorchTitan's names for JSON lines with "text", in file order.
    {"c4_test", open_jsonl_files},
    {"c4", open_jsonl_files},
    {"c4_validation", open_jsonl_files},
};

constexpr const char* kIndexed = "indexed";  // not of text: tokenized before

}  // namespace

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetKind& kind : kDatasets) names.emplace_back(kind.name);
  names.emplace_back(kIndexed);
  return names;
}

std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path) {
  const std::string lower = lower_case(name);
  for (const DatasetKind& kind : kDatasets) {
    if (lower == kind.name) return kind.open(path);
  }
  if (lower == kIndexed) throw DataError("dataset \"indexed\" holds tokens, where text is wanted");
  const std::vector<std::string> names = dataset_names();
  const auto nearest = nearest_name(lower, names);
  throw DataError("unknown dataset \"" + name + "\"." + (nearest ? " Did you mean \"" + *nearest + "\"?" : "") +
                  " Known: " + join(names, ", ") +
                  ". Nothing is streamed from a network: download a dataset as JSON lines first.");
}

std::shared_ptr<const TokenSource> open_tokens(const std::string& name, const std::filesystem::path& path,
                                               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len) {
  if (lower_case(name) == kIndexed) return open_indexed_shards(path, seq_len, tokenizer->vocab_size());
  return tokenize_documents(open_dataset(name, path), std::move(tokenizer), name);
}

}  // namespace titan::data
