#include "data/sources/indexed_shards.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits/parse_json.h"
#include "base/text.h"
#include "data/io/files.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kHeaderBytes = 34;
constexpr std::size_t kScanBytes = 8 << 20;

struct Shard {
  fs::path prefix;
  InputFile bin;
  TokenType type;
  std::int64_t first_token = 0;  // in the stream
  std::int64_t num_tokens = 0;
};

struct Header {
  TokenType type;
  std::uint64_t num_sequences;
  std::uint64_t num_boundaries;
};

template <typename T>
T number_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Reads one .idx file piece by piece, and checks that it is consistent and agrees with its .bin.
class Index {
 public:
  Index(const fs::path& path, std::uint64_t bin_bytes) : path_(path), file_(path), bin_bytes_(bin_bytes) {}

  Header check() const {
    const Header header = read_header();
    const std::uint64_t sizes_at = kHeaderBytes;
    const std::uint64_t pointers_at = sizes_at + 4 * header.num_sequences;
    const std::uint64_t documents_at = pointers_at + 8 * header.num_sequences;
    check_sequences(header, sizes_at, pointers_at);
    check_documents(header, documents_at);
    return header;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const { throw DataError(path_.string() + ": " + what); }

  Header read_header() const {
    std::array<char, kHeaderBytes> bytes{};
    if (file_.size() < kHeaderBytes) {
      wrong("it has " + std::to_string(file_.size()) + " bytes, an index has at least " + std::to_string(kHeaderBytes) +
            ": it is cut short, or no index");
    }
    file_.read_at(0, bytes);
    if (std::memcmp(bytes.data(), "MMIDIDX\0\0", 9) != 0) {
      wrong("it does not begin with MMIDIDX: it is not an index of the .bin/.idx format");
    }
    const auto version = number_at<std::uint64_t>(bytes.data() + 9);
    if (version != 1) wrong("it is of version " + std::to_string(version) + " of the format, expected 1");
    const auto code = static_cast<unsigned>(static_cast<unsigned char>(bytes[17]));
    if (!((code >= 1 && code <= 5) || code == 8)) {
      wrong("its tokens are of type " + std::to_string(code) +
            ", expected an integer type: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64 or 8 uint16");
    }
    const Header header{static_cast<TokenType>(code), number_at<std::uint64_t>(bytes.data() + 18),
                        number_at<std::uint64_t>(bytes.data() + 26)};
    const std::uint64_t most = file_.size();  // so that the multiplications below cannot overflow
    const std::uint64_t expected = header.num_sequences > most || header.num_boundaries > most
                                       ? 0
                                       : kHeaderBytes + 12 * header.num_sequences + 8 * header.num_boundaries;
    if (expected != file_.size()) {
      wrong("its header says " + with_thousands(static_cast<std::int64_t>(header.num_sequences)) + " sequences and " +
            with_thousands(static_cast<std::int64_t>(header.num_boundaries)) + " document boundaries, which take " +
            (expected == 0 ? "more than the file" : std::to_string(expected) + " bytes") + "; the file has " +
            std::to_string(file_.size()) + " (cut short, or written by something else?)");
    }
    return header;
  }

  // Checks that the sequences follow each other without gaps, as every writer of the format stores them, and fill the
  // .bin.
  void check_sequences(const Header& header, std::uint64_t sizes_at, std::uint64_t pointers_at) const {
    std::uint64_t expected = 0;
    std::vector<char> sizes, pointers;
    for (std::uint64_t begin = 0; begin < header.num_sequences;) {
      const std::uint64_t count = std::min<std::uint64_t>(kScanBytes / 8, header.num_sequences - begin);
      sizes.resize(4 * count);
      pointers.resize(8 * count);
      file_.read_at(sizes_at + 4 * begin, sizes);
      file_.read_at(pointers_at + 8 * begin, pointers);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto size = number_at<std::int32_t>(sizes.data() + 4 * i);
        const auto pointer = number_at<std::int64_t>(pointers.data() + 8 * i);
        const std::string sequence = "sequence " + std::to_string(begin + i);
        if (size < 0) wrong(sequence + " has a length of " + std::to_string(size));
        if (pointer < 0 || static_cast<std::uint64_t>(pointer) != expected) {
          wrong(sequence + " begins at byte " + std::to_string(pointer) + " of the .bin, expected " +
                std::to_string(expected) + ", where the one before it ends");
        }
        expected += static_cast<std::uint64_t>(size) * bytes_of(header.type);
      }
      begin += count;
    }
    if (expected != bin_bytes_) {
      wrong("its sequences take " + std::to_string(expected) + " bytes, " + path_.stem().string() + ".bin has " +
            std::to_string(bin_bytes_) + (bin_bytes_ < expected ? ": the .bin is cut short" : ""));
    }
  }

  void check_documents(const Header& header, std::uint64_t documents_at) const {
    std::vector<char> boundaries;
    std::int64_t previous = 0;
    for (std::uint64_t begin = 0; begin < header.num_boundaries;) {
      const std::uint64_t count = std::min<std::uint64_t>(kScanBytes / 8, header.num_boundaries - begin);
      boundaries.resize(8 * count);
      file_.read_at(documents_at + 8 * begin, boundaries);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto boundary = number_at<std::int64_t>(boundaries.data() + 8 * i);
        if (boundary < previous || static_cast<std::uint64_t>(boundary) > header.num_sequences) {
          wrong("document " + std::to_string(begin + i) + " begins at sequence " + std::to_string(boundary) +
                ", which is out of order or beyond the last");
        }
        previous = boundary;
      }
      begin += count;
    }
  }

  const fs::path& path_;
  InputFile file_;
  std::uint64_t bin_bytes_;
};

constexpr std::size_t kNumber = 5, kTail = 1 + kNumber + 4 + kNumber;  // lengths in "-00003-of-00010"

// Returns 10 for "PREFIX-00003-of-00010" if `prefix` is PREFIX; nullopt for other names.
std::optional<std::int64_t> shards_in_all(const std::string& name, const std::string& prefix) {
  if (name.size() != prefix.size() + kTail || !name.starts_with(prefix)) return std::nullopt;
  const std::string tail = name.substr(prefix.size());
  if (tail[0] != '-' || tail.substr(1 + kNumber, 4) != "-of-") return std::nullopt;
  const std::string numbers = tail.substr(1, kNumber) + tail.substr(1 + kNumber + 4);
  if (!std::ranges::all_of(numbers, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return std::stoll(numbers.substr(kNumber));
}

[[noreturn]] void throw_incomplete(const fs::path& prefix, std::int64_t there, std::int64_t in_all) {
  throw DataError(prefix.string() + ": " + std::to_string(there) + " of " + std::to_string(in_all) +
                  " shards are there. Run titan-train tokenize again: it goes on where it stopped");
}

// Checks that each series of shards in a folder is complete.
void check_whole(const std::vector<fs::path>& shards) {
  std::map<std::pair<fs::path, std::int64_t>, std::int64_t> counts;
  for (const fs::path& shard : shards) {
    const std::string name = shard.filename().string();
    const std::string prefix = name.substr(0, name.size() > kTail ? name.size() - kTail : 0);
    if (const auto in_all = shards_in_all(name, prefix)) ++counts[{shard.parent_path() / prefix, *in_all}];
  }
  for (const auto& [series, there] : counts)
    if (there != series.second) throw_incomplete(series.first, there, series.second);
}

// Returns the prefixes of the shards that `path` names, in order.
std::vector<fs::path> find_shards(fs::path path) {
  const std::array<std::string, 1> extension = {".idx"};
  std::vector<fs::path> found;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    found = list_files(path, extension);
    for (fs::path& file : found) file.replace_extension();
    check_whole(found);
    return found;
  }
  if (path.extension() == ".idx" || path.extension() == ".bin") path.replace_extension();
  if (fs::exists(path.string() + ".idx", ignored)) return {path};
  if (fs::exists(path.string() + ".bin", ignored)) {
    throw DataError("no index " + path.string() + ".idx beside " + path.string() + ".bin");
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::optional<std::int64_t> in_all;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    if (entry->path().extension() != ".idx") continue;
    if (const auto count = shards_in_all(entry->path().stem().string(), path.filename().string())) {
      in_all = count;
      found.push_back(entry->path().parent_path() / entry->path().stem());
    }
  }
  if (!in_all) {
    throw DataError("no dataset at " + path.string() + ": looked for " + path.filename().string() + ".idx, " +
                    path.filename().string() + "-00000-of-*.idx, and a folder with *.idx files; " + folder.string() +
                    " holds " + describe_folder(folder));
  }
  if (std::ssize(found) != *in_all) throw_incomplete(path, std::ssize(found), *in_all);
  std::ranges::sort(found);
  return found;
}

// Returns the PREFIX.json files in which `titan-train tokenize` recorded how these shards were made.
std::set<fs::path> notes_of(const std::vector<fs::path>& shards) {
  std::set<fs::path> notes;
  for (const fs::path& shard : shards) {
    const std::string name = shard.filename().string();
    const auto tail = name.size() > kTail ? name.size() - kTail : 0;
    if (shards_in_all(name, name.substr(0, tail))) notes.insert(shard.parent_path() / (name.substr(0, tail) + ".json"));
  }
  return notes;
}

struct BadToken {
  std::size_t index = SIZE_MAX;
  std::int64_t id = 0;  // as stored
};

template <typename T>
void widen(std::span<const char> bytes, std::vector<std::int32_t>& out, BadToken& bad, std::int64_t vocab_size) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    const auto id = static_cast<std::int64_t>(number_at<T>(bytes.data() + at));
    if ((id < 0 || id >= vocab_size) && bad.index == SIZE_MAX) bad = {at / sizeof(T), id};
    out.push_back(static_cast<std::int32_t>(id));
  }
}

class IndexedShards final : public TokenSource {
 public:
  IndexedShards(const fs::path& path, std::int64_t seq_len, std::int64_t vocab_size)
      : window_(seq_len + 1), vocab_size_(vocab_size) {
    for (const fs::path& prefix : find_shards(path)) add_shard(prefix);
    if (total_tokens_ < window_) {
      throw DataError("dataset \"indexed\" at " + path.string() + " has " + with_thousands(total_tokens_) +
                          " tokens in all, fewer than one window of training.seq_len + 1 = " + with_thousands(window_),
                      {"training.seq_len"});
    }
  }

  std::int64_t num_items() const override { return total_tokens_ / window_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::string name() const override { return "dataset \"indexed\""; }
  std::string contents() const override {
    return counted(num_items(), "window") + " of " + with_thousands(window_) + " tokens";
  }

  TokenRun tokens(std::int64_t index) const override {
    TITAN_CHECK(index >= 0 && index < num_items(), "window " + std::to_string(index));
    std::vector<std::int32_t> out;
    out.reserve(static_cast<std::size_t>(window_));
    std::int64_t at = index * window_;
    const std::int64_t end = at + window_;
    auto shard = std::ranges::upper_bound(shards_, at, {}, [](const Shard& s) { return s.first_token + s.num_tokens; });
    for (; at < end; ++shard) {
      const std::int64_t count = std::min(end, shard->first_token + shard->num_tokens) - at;
      read(*shard, at - shard->first_token, count, out);
      at += count;
    }
    return whole_run(std::move(out));
  }

 private:
  void add_shard(const fs::path& prefix) {
    const fs::path bin_path = prefix.string() + ".bin", index_path = prefix.string() + ".idx";
    InputFile bin(bin_path);
    const Header header = Index(index_path, bin.size()).check();
    const auto tokens = static_cast<std::int64_t>(bin.size() / bytes_of(header.type));
    if (tokens == 0) return;
    shards_.push_back({prefix, std::move(bin), header.type, total_tokens_, tokens});
    total_tokens_ += tokens;
  }

  void read(const Shard& shard, std::int64_t first, std::int64_t count, std::vector<std::int32_t>& out) const {
    const std::size_t width = bytes_of(shard.type);
    std::vector<char> bytes(static_cast<std::size_t>(count) * width);
    shard.bin.read_at(static_cast<std::uint64_t>(first) * width, bytes);
    BadToken bad;
    switch (shard.type) {
      case TokenType::kUint8:
        widen<std::uint8_t>(bytes, out, bad, vocab_size_);
        break;
      case TokenType::kInt8:
        widen<std::int8_t>(bytes, out, bad, vocab_size_);
        break;
      case TokenType::kInt16:
        widen<std::int16_t>(bytes, out, bad, vocab_size_);
        break;
      case TokenType::kInt32:
        widen<std::int32_t>(bytes, out, bad, vocab_size_);
        break;
      case TokenType::kInt64:
        widen<std::int64_t>(bytes, out, bad, vocab_size_);
        break;
      case TokenType::kUint16:
        widen<std::uint16_t>(bytes, out, bad, vocab_size_);
        break;
    }
    if (bad.index == SIZE_MAX) return;
    throw DataError(shard.prefix.string() + ".bin: token " +
                    std::to_string(first + static_cast<std::int64_t>(bad.index)) + " is " + std::to_string(bad.id) +
                    ", the tokenizer has ids 0 to " + std::to_string(vocab_size_ - 1) +
                    ". Was it tokenized with another tokenizer?");
  }

  std::int64_t window_;
  std::int64_t vocab_size_;
  std::vector<Shard> shards_;  // only shards that hold tokens
  std::int64_t total_tokens_ = 0;
};

}  // namespace

std::vector<fs::path> list_indexed_files(const fs::path& path) {
  std::vector<fs::path> files;
  for (const fs::path& prefix : find_shards(path))
    for (const char* extension : {".bin", ".idx"}) files.emplace_back(prefix.string() + extension);
  return files;
}

void check_indexed_shards(const fs::path& path, const std::string& tokenizer) {
  for (const fs::path& note : notes_of(find_shards(path))) {
    if (!fs::exists(note)) continue;
    const auto json = try_parse_json<nlohmann::json>(read_file(note));
    const auto made_with = json.is_object() ? json.value("tokenizer", nlohmann::json()) : nlohmann::json();
    if (!made_with.is_string() || made_with == tokenizer) continue;
    throw DataError(
        note.string() + ": its shards were made with another tokenizer, " + made_with.get<std::string>() +
            " (file, bytes, checksum), than the run's, " + tokenizer +
            ": their tokens mean something else. Name that tokenizer in model.hf_assets_path, or run titan-train "
            "tokenize with this one; where the two are alike for sure, remove " +
            note.filename().string(),
        {"model.hf_assets_path"});
  }
}

std::shared_ptr<const TokenSource> open_indexed_shards(const fs::path& path, std::int64_t seq_len,
                                                       std::int64_t vocab_size) {
  return std::make_shared<IndexedShards>(path, seq_len, vocab_size);
}

}  // namespace titan::data
