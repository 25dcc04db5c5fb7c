#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "base/fs.h"
#include "data/dataset_kinds.h"
#include "data/sources/indexed_shards.h"
#include "data/sources/tokenize.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::int32_t> count_up(std::int32_t from, std::int32_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), from);
  return out;
}

void write_shard(const std::filesystem::path& prefix, TokenType type,
                 const std::vector<std::vector<std::int32_t>>& documents) {
  IndexedShardWriter writer(prefix, type);
  for (const auto& document : documents) writer.add_document(document);
  writer.finish();
}

std::vector<std::int32_t> all_tokens(const TokenSource& source) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < source.num_items(); ++i) {
    const TokenRun run = source.tokens(i);
    out.insert(out.end(), run.owner->begin(), run.owner->end());
  }
  return out;
}

// Every byte of the index, spelled out.
TEST(IndexedShards, BytesOfTheFormat) {
  const TempFolder folder;
  write_shard(folder.path() / "a", TokenType::kUint16, {{1, 2, 65535}, {}, {7}});
  const std::string number = std::string(7, '\0');
  std::string index("MMIDIDX\0\0", 9);
  index += "\x01" + number + "\x08" + "\x03" + number + "\x04" + number;
  for (const char size : {3, 0, 1}) index += std::string(1, size) + std::string(3, '\0');
  for (const char at : {0, 6, 6, 0, 1, 2, 3}) index += std::string(1, at) + number;
  EXPECT_EQ(read_file(folder.path() / "a.idx"), index);
  EXPECT_EQ(read_file(folder.path() / "a.bin"), std::string("\1\0\2\0\xff\xff\7\0", 8));
}

TEST(IndexedShards, WindowsOfOneStreamOverTheShards) {
  const TempFolder folder;
  write_shard(folder.path() / "b", TokenType::kInt32, {count_up(10, 3), {}, count_up(13, 9)});
  write_shard(folder.path() / "a", TokenType::kUint16, {count_up(0, 10)});
  std::filesystem::create_directories(folder.path() / "c");
  write_shard(folder.path() / "c/0", TokenType::kUint16, {{}});
  write_shard(folder.path() / "c/1", TokenType::kUint16, {count_up(22, 3)});
  const auto source = open_indexed_shards(folder.path(), 3, 100);
  EXPECT_EQ(source->num_items(), 6);  // 25 tokens, windows of 4
  EXPECT_EQ(all_tokens(*source), count_up(0, 24));
  EXPECT_EQ(all_tokens(*open_indexed_shards(folder.path() / "a.idx", 4, 100)), count_up(0, 10));
  EXPECT_EQ(all_tokens(*open_indexed_shards(folder.path() / "a", 4, 100)), count_up(0, 10));
}

TEST(IndexedShards, EveryIntegerTypeIsRead) {
  const TempFolder folder;
  const auto make = [&](char code, const std::string& bin, int width) {
    std::string index("MMIDIDX\0\0", 9);
    const std::string number = std::string(7, '\0');
    index += "\x01" + number + code + "\x01" + number + "\x02" + number;
    index += std::string(1, static_cast<char>(static_cast<int>(bin.size()) / width)) + std::string(3, '\0');
    for (const char at : {0, 0, 1}) index += std::string(1, at) + number;
    folder.write("x.idx", index);
    folder.write("x.bin", bin);
    return all_tokens(*open_indexed_shards(folder.path() / "x", 1, 1000));
  };
  using TokenIds = std::vector<std::int32_t>;
  EXPECT_EQ(make(1, "\x01\xff", 1), (TokenIds{1, 255}));
  EXPECT_EQ(make(2, "\x01\x7f", 1), (TokenIds{1, 127}));
  EXPECT_EQ(make(3, std::string("\x01\x00\x2c\x01", 4), 2), (TokenIds{1, 300}));
  EXPECT_EQ(make(8, std::string("\x01\x00\x2c\x01", 4), 2), (TokenIds{1, 300}));
  EXPECT_EQ(make(4, std::string("\x01\0\0\0\x2c\x01\0\0", 8), 4), (TokenIds{1, 300}));
  EXPECT_EQ(make(5, std::string("\x01\0\0\0\0\0\0\0\x2c\x01\0\0\0\0\0\0", 16), 8), (TokenIds{1, 300}));
  for (const char code : {0, 6, 7, 9}) {
    EXPECT_THAT(data_error([&] { make(code, "ab", 1); }), HasSubstr("x.idx: its tokens are of type"));
  }
  EXPECT_THAT(data_error([&] { make(2, "\x01\xff", 1); }), HasSubstr("x.bin: token 1 is -1"));
  // The error shows the stored value, not its lower 32 bits.
  EXPECT_THAT(data_error([&] { make(5, std::string("\x01\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0", 16), 8); }),
              HasSubstr("x.bin: token 1 is 4294967301"));
}

TEST(IndexedShards, DamagedFilesAreNamed) {
  const TempFolder folder;
  const auto prefix = folder.path() / "a";
  write_shard(prefix, TokenType::kInt32, {count_up(0, 20), count_up(20, 20)});
  const std::string index = read_file(folder.path() / "a.idx"), bin = read_file(folder.path() / "a.bin");
  const auto open = [&] { return open_indexed_shards(prefix, 4, 100); };
  // Cut at every length: never accepted.
  for (std::size_t length = 0; length < index.size(); ++length) {
    folder.write("a.idx", index.substr(0, length));
    EXPECT_THAT(data_error([&] { open(); }), HasSubstr("a.idx: ")) << length;
  }
  const auto with_byte = [&](std::size_t at, char value) {
    std::string changed = index;
    changed[at] = value;
    folder.write("a.idx", changed);
    return data_error([&] { open(); });
  };
  EXPECT_THAT(with_byte(0, 'X'), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(with_byte(9, 2), HasSubstr("version 2"));
  EXPECT_THAT(with_byte(18, 3), HasSubstr("3 sequences"));
  EXPECT_THAT(with_byte(25, 0x7f), HasSubstr("more than the file"));
  EXPECT_THAT(with_byte(34, 21), HasSubstr("sequence 1 begins at byte 80 of the .bin, expected 84"));
  EXPECT_THAT(with_byte(38, 21), HasSubstr("take 164 bytes, a.bin has 160: the .bin is cut short"));
  EXPECT_THAT(with_byte(37, -1), HasSubstr("a length of -"));
  EXPECT_THAT(with_byte(index.size() - 8, 3), HasSubstr("document 2 begins at sequence 3"));
  folder.write("a.idx", index);
  folder.write("a.bin", bin.substr(0, 156));
  EXPECT_THAT(data_error([&] { open(); }),
              AllOf(HasSubstr("a.idx"), HasSubstr("a.bin has 156: the .bin is cut short")));
  folder.write("a.bin", bin);
  EXPECT_EQ(all_tokens(*open()), count_up(0, 40));
  EXPECT_THAT(data_error([&] { open_indexed_shards(prefix, 4, 39)->tokens(7); }), HasSubstr("a.bin: token 39 is 39"));
  EXPECT_THAT(data_error([&] { open_indexed_shards(prefix, 40, 100); }), HasSubstr("40 tokens in all"));
  const auto source = open();
  std::filesystem::resize_file(folder.path() / "a.bin", 100);
  EXPECT_THAT(data_error([&] { source->tokens(0); }), HasSubstr("shorter"));
  std::filesystem::remove(folder.path() / "a.idx");
  EXPECT_THAT(data_error([&] { open(); }), HasSubstr("no index"));
  EXPECT_THAT(data_error([&] { open_indexed_shards(folder.path() / "nothing", 4, 100); }), HasSubstr("no dataset at"));
}

class Numbers final : public TextSource {
 public:
  explicit Numbers(std::int64_t count) : count_(count) {}
  std::int64_t num_documents() const override { return count_; }
  std::string document(std::int64_t index) const override {
    if (index == bad) throw BadRecord("document " + std::to_string(index) + " is bad");
    return std::string(static_cast<std::size_t>(index * 13 % 29), static_cast<char>('a' + index % 26));
  }
  std::int64_t bad = -1;

 private:
  std::int64_t count_;
};

std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

TEST(Tokenize, InterruptedRunsGiveTheSameBytes) {
  const Numbers source(500);
  const ByteTokenizer tokenizer;
  const TempFolder once, again;
  TokenizeOptions options{.output = once.path() / "x",
                          .source = "numbers",
                          .tokenizer = "bytes",
                          .append_bos = true,
                          .append_eos = true,
                          .workers = 1,
                          .shard_documents = 40};
  const auto go_on = [](const TokenizeProgress&) { return true; };
  const TokenizeProgress whole = tokenize_to_shards(source, tokenizer, options, go_on);
  EXPECT_EQ(whole.shards, 13);
  EXPECT_EQ(whole.finished_shards, 13);
  EXPECT_EQ(whole.documents, 500);
  // The shards hold the documents as training reads them.
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 0; i < 500; ++i) tokenizer.encode_document(source.document(i), expected);
  EXPECT_EQ(whole.tokens, std::ssize(expected));
  EXPECT_EQ(all_tokens(*open_indexed_shards(options.output, 0, 258)), expected);

  // A killed run: some shards are complete, one has only its .bin, one is half written.
  options.output = again.path() / "x";
  for (const int shard : {0, 3, 12}) {
    for (const char* end : {".bin", ".idx"}) {
      const std::string name = "x-000" + std::string(shard < 10 ? "0" : "") + std::to_string(shard) + "-of-00013" + end;
      std::filesystem::copy(once.path() / name, again.path() / name);
    }
  }
  again.write("x-00005-of-00013.bin", "half");
  again.write("x-00007-of-00013.bin.tmp", std::string(1 << 20, 'z'));
  EXPECT_THAT(data_error([&] { open_indexed_shards(options.output, 4, 258); }), HasSubstr("3 of 13 shards"));
  const auto untouched = std::filesystem::last_write_time(again.path() / "x-00003-of-00013.bin");
  options.workers = 3;
  const TokenizeProgress rest = tokenize_to_shards(source, tokenizer, options, go_on);
  EXPECT_EQ(rest.kept_shards, 3);
  EXPECT_EQ(rest.documents, 500 - 40 - 40 - 20);
  EXPECT_EQ(std::filesystem::last_write_time(again.path() / "x-00003-of-00013.bin"), untouched);
  EXPECT_EQ(contents(again.path()), contents(once.path()));
}

TEST(Tokenize, StopsWhenAskedAndRefusesOtherOptions) {
  const Numbers source(2000);
  const ByteTokenizer tokenizer;
  const TempFolder folder;
  TokenizeOptions options{.output = folder.path() / "deep/x", .source = "numbers", .tokenizer = "bytes"};
  tokenize_to_shards(source, tokenizer, options, [](const TokenizeProgress&) { return false; });
  options.append_eos = true;
  EXPECT_THAT(
      data_error([&] { tokenize_to_shards(source, tokenizer, options, [](const TokenizeProgress&) { return true; }); }),
      AllOf(HasSubstr("x.json"), HasSubstr("other options")));
}

TEST(Tokenize, ShardsKnowTheirTokenizer) {
  const Numbers source(100);
  const ByteTokenizer tokenizer;
  const TempFolder folder;
  const TokenizeOptions options{.output = folder.path() / "x", .source = "numbers", .tokenizer = "a.model:3:0abc"};
  tokenize_to_shards(source, tokenizer, options, [](const TokenizeProgress&) { return true; });
  const auto shard = folder.path() / "x-00000-of-00007.idx";
  for (const auto& path : {options.output, folder.path(), shard}) {
    check_dataset("Indexed", path, options.tokenizer);
    EXPECT_THAT(data_error([&] { check_dataset("indexed", path, "a.model:3:0abd"); }),
                AllOf(HasSubstr("x.json"), HasSubstr("another tokenizer, a.model:3:0abc"), HasSubstr("remove x.json")))
        << path;
  }
  std::filesystem::remove(folder.path() / "x.json");  // now nothing is known about the shards, as about foreign ones
  check_dataset("indexed", folder.path(), "a.model:3:0abd");
}

TEST(Tokenize, BadRecordsAreErrorsOrSkipped) {
  Numbers source(100);
  source.bad = 50;
  const ByteTokenizer tokenizer;
  const TempFolder folder;
  TokenizeOptions options{.output = folder.path() / "x", .source = "numbers", .tokenizer = "bytes", .workers = 2};
  const auto go_on = [](const TokenizeProgress&) { return true; };
  EXPECT_THAT(data_error([&] { tokenize_to_shards(source, tokenizer, options, go_on); }),
              HasSubstr("document 50 is bad"));
  options.on_bad_record = OnBadRecord::kSkip;
  options.output = folder.path() / "y";
  const TokenizeProgress made = tokenize_to_shards(source, tokenizer, options, go_on);
  EXPECT_EQ(made.bad_records, 1);
  EXPECT_EQ(made.documents, 99);  // the documents written
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 0; i < 100; ++i) {
    if (i != 50) tokenizer.encode(source.document(i), expected);
  }
  EXPECT_EQ(all_tokens(*open_indexed_shards(options.output, 0, 258)), expected);
}

}  // namespace
}  // namespace titan::data
