#include "data/dataset_kinds.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/datasets.h"
#include "data/io/files.h"
#include "data/sources/indexed_shards.h"
#include "data/sources/jsonl_source.h"

namespace titan::data {
namespace {

struct DatasetKind {
  const char* name;
  std::unique_ptr<TextSource> (*open)(const std::filesystem::path& path, const std::string& text_key);
  std::vector<std::filesystem::path> (*list)(const std::filesystem::path& path);
  void (*prepare)(const std::filesystem::path& path);  // null if there is nothing to prepare
};

std::unique_ptr<TextSource> open_whole_files(const std::filesystem::path& path, const std::string& /*text_key*/) {
  return open_text_files(path);
}

std::unique_ptr<TextSource> refuse_chats(const std::filesystem::path& /*path*/, const std::string& /*text_key*/) {
  throw DataError("dataset \"chat\" holds conversations, where text is wanted");
}

constexpr DatasetKind kDatasets[] = {
    {"text", open_whole_files, list_text_files, nullptr},
    {"jsonl", open_jsonl_files, list_jsonl_files, prepare_jsonl_files},
    {"chat", refuse_chats, list_jsonl_files, prepare_jsonl_files},
    // TorchTitan's names for JSON lines with "text", in file order.
    {"c4_test", open_jsonl_files, list_jsonl_files, prepare_jsonl_files},
    {"c4", open_jsonl_files, list_jsonl_files, prepare_jsonl_files},
    {"c4_validation", open_jsonl_files, list_jsonl_files, prepare_jsonl_files},
};

constexpr const char* kIndexed = "indexed";  // tokenized shards, not text
constexpr const char* kChat = "chat";        // conversations, not text

const DatasetKind& kind_of(const std::string& name) {
  const std::string lower = config::lower_case(name);
  for (const DatasetKind& kind : kDatasets)
    if (lower == kind.name) return kind;
  if (lower == kIndexed) throw DataError("dataset \"indexed\" holds tokens, where text is wanted");
  throw DataError("unknown dataset \"" + name + "\"; known are " + join(config::dataset_kinds(), ", "));
}

}  // namespace

std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path,
                                         const std::string& text_key) {
  return kind_of(name).open(path, text_key);
}

std::vector<std::filesystem::path> list_dataset(const std::string& name, const std::filesystem::path& path) {
  return config::lower_case(name) == kIndexed ? list_indexed_files(path) : kind_of(name).list(path);
}

std::string kind_by_names(const std::filesystem::path& path) {
  const auto files = list_files(path, {});
  return std::ranges::any_of(files, is_named_as_jsonl) ? "jsonl" : "text";
}

std::vector<std::string> doubtful_names(const std::string& name, const std::filesystem::path& path) {
  if (config::lower_case(name) == kIndexed) return {};
  const DatasetKind& kind = kind_of(name);
  const auto read = kind.list(path);
  if (std::string(kind.name) == "text") {
    const auto count = std::ranges::count_if(read, is_named_as_jsonl);
    if (count == 0) return {};
    return {counted(count, "file") + " of " + path.string() +
            (count == 1 ? " holds JSON lines by its name, and is" : " hold JSON lines by their names, and are") +
            " read as text, braces and all: dataset kind \"jsonl\" reads the documents in \"text\""};
  }
  auto unread = list_files(path, {});
  const std::set<std::filesystem::path> is_read(read.begin(), read.end());
  std::erase_if(unread, [&](const auto& file) { return is_read.contains(file); });
  if (unread.empty()) return {};
  std::vector<std::string> names;
  for (const auto& file : unread) names.push_back(file.lexically_relative(folder_of(path)).string());
  constexpr std::size_t kMostNames = 8;
  if (names.size() > kMostNames) names.resize(kMostNames), names.emplace_back("...");
  return {counted(std::ssize(unread), "file") + " of " + path.string() + (unread.size() == 1 ? " is" : " are") +
          " not read: " + join(names, ", ") + " (\"" + name +
          "\" reads names that end in .json or .jsonl, and those with .gz or .zst)"};
}

void prepare_dataset(const std::string& name, const std::filesystem::path& path) {
  if (config::lower_case(name) == kIndexed) return;
  if (const DatasetKind& kind = kind_of(name); kind.prepare) kind.prepare(path);
}

void check_dataset(const std::string& name, const std::filesystem::path& path, const std::string& tokenizer) {
  if (config::lower_case(name) == kIndexed) return check_indexed_shards(path, tokenizer);
  kind_of(name).list(path);
}

std::shared_ptr<const TokenSource> open_tokens(const std::string& name, const std::filesystem::path& path,
                                               std::shared_ptr<const Tokenizer> tokenizer, std::int64_t seq_len,
                                               const std::string& text_key, const ChatDataset& chat) {
  if (config::lower_case(name) == kIndexed) return open_indexed_shards(path, seq_len, tokenizer->vocab_size());
  if (config::lower_case(name) == kChat) return open_chats(path, std::move(tokenizer), seq_len, chat);
  return tokenize_documents(open_dataset(name, path, text_key), std::move(tokenizer), name);
}

}  // namespace titan::data
