#include "data/sources/text_source.h"

#include <gmock/gmock.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>

#include "config/keys/datasets.h"
#include "data/dataset_kinds.h"
#include "data/sources/jsonl_source.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> documents(const TextSource& source) {
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < source.num_documents(); ++i) texts.push_back(source.document(i));
  return texts;
}

// A kind that a configuration may name but nothing opens would be noticed only when the run starts.
TEST(Registry, OpensEveryKindThatAConfigurationMayName) {
  const TempFolder folder;
  for (const std::string& kind : config::dataset_kinds()) {
    EXPECT_THAT(data_error([&] { check_dataset(kind, folder.path(), ""); }), HasSubstr(folder.path().string())) << kind;
  }
}

TEST(ContiguousBlock, FirstRanksTakeTheRemainder) {
  // 11 documents on 4 ranks: 3, 3, 3, 2.
  const std::int64_t starts[] = {0, 3, 6, 9};
  const std::int64_t counts[] = {3, 3, 3, 2};
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(contiguous_block(11, rank, 4).start, starts[rank]);
    EXPECT_EQ(contiguous_block(11, rank, 4).count, counts[rank]);
  }
}

TEST(ContiguousBlock, BlocksTileTheDataset) {
  for (std::int64_t n = 1; n < 40; ++n) {
    for (std::int64_t size = 1; size <= 9; ++size) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < size; ++rank) {
        const DocumentBlock block = contiguous_block(n, rank, size);
        EXPECT_EQ(block.start, next);
        next += block.count;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(TextFiles, OneDocumentAFile) {
  const TempFolder folder;
  folder.write("b.txt", "second\n");
  folder.write("a/x", "first\n\xc3\xa9");
  folder.write("c", "");
  EXPECT_THAT(documents(*open_text_files(folder.path())), ElementsAre("first\n\xc3\xa9", "second\n", ""));
  EXPECT_THAT(documents(*open_text_files(folder.path() / "b.txt")), ElementsAre("second\n"));
}

TEST(TextFiles, ErrorsNameTheFile) {
  const TempFolder folder;
  const auto empty = folder.write("empty", "");
  EXPECT_THAT(data_error([&] { open_text_files(empty); }), AllOf(HasSubstr(empty.string()), HasSubstr("empty")));
  const auto latin1 = folder.write("latin1",
                                   "one\ntwo\nth\xe9"
                                   "ee\n");
  const auto source = open_text_files(folder.path());
  EXPECT_THAT(data_error([&] { source->document(1); }), AllOf(HasSubstr(latin1.string() + ":3"), HasSubstr("UTF-8")));
  std::filesystem::remove(latin1);
  EXPECT_THAT(data_error([&] { source->document(1); }), HasSubstr(latin1.string()));
}

TEST(JsonlFiles, SkipsBlankLinesAndReadsFilesInOrder) {
  const TempFolder folder;
  folder.write("2.json", "{\"text\": \"c\"}");  // no newline at the end
  folder.write("1.jsonl",
               "\n{\"text\": \"a\\n\\u00e9\", \"url\": \"x\"}\r\n  \n\t\r\n   {\"id\": 1, \"text\": \"\"}\n\n");
  folder.write("README.md", "not data");
  folder.write("0.jsonl", "\n\n");
  EXPECT_THAT(documents(*open_jsonl_files(folder.path())), ElementsAre("a\n\xc3\xa9", "", "c"));
}

// json.dumps writes NaN and infinities like this. Unread fields may have them; strings stay unchanged.
TEST(JsonlFiles, ReadsWhatPythonWritesForNumbersThatAreNone) {
  const TempFolder folder;
  const auto file =
      folder.write("a.jsonl",
                   "{\"score\": NaN, \"text\": \"NaN -Infinity \\\" NaN\", \"x\": [-Infinity, Infinity]}\n"
                   "{\"text\": \"b\", \"score\": NaNs}\n"
                   "{\"text\": NaN}\n"
                   "{\"a\": NaN, \"text\": \"c\"\n");
  const auto source = open_jsonl_files(file);
  EXPECT_EQ(source->document(0), "NaN -Infinity \" NaN");
  EXPECT_THAT(data_error([&] { source->document(1); }), HasSubstr(":2:"));
  EXPECT_THAT(data_error([&] { source->document(2); }), HasSubstr("\"text\" is not a string"));
  EXPECT_THAT(data_error([&] { source->document(3); }), HasSubstr(":4:23: not a JSON object"));
}

TEST(JsonlFiles, TheDocumentMayBeInAnotherField) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{\"content\": \"a\", \"id\": 7}\n{\"title\": \"b\", \"text\": \"c\"}\n");
  const auto source = open_jsonl_files(file, "content");
  EXPECT_EQ(source->document(0), "a");
  EXPECT_THAT(data_error([&] { source->document(1); }), HasSubstr("has no \"content\" (its strings: text, title)"));
  EXPECT_THAT(data_error([&] { open_jsonl_files(file)->document(0); }),
              HasSubstr("has no \"text\" (its strings: content). Every line must be a JSON object with its document in "
                        "\"text\"; another field is named by dataset_text_key"));
}

TEST(JsonlFiles, PassesOverAByteOrderMark) {
  const TempFolder folder;
  const std::string mark = "\xEF\xBB\xBF";
  folder.write("a.jsonl", mark + "\n{\"text\": \"a\"}\n");
  folder.write("b.jsonl", mark + "\r\n\r\n{\"text\": \"b\"}\r\n");
  folder.write("c.jsonl", mark + "{\"text\": \"c\"}");
  folder.write("d.jsonl", mark);
  EXPECT_THAT(documents(*open_jsonl_files(folder.path())), ElementsAre("a", "b", "c"));
}

// Lines, blank or not, on both sides of the borders between the scanned pieces of a file (1 MiB).
TEST(JsonlFiles, FindsLinesAcrossScanBorders) {
  const TempFolder folder;
  std::string content;
  std::vector<std::string> expected;
  for (int i = 0; content.size() < (5u << 20); ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i * 7919 % 3001), 'x') + std::to_string(i));
    content += "{\"text\":\"" + expected.back() + "\"}" + std::string(static_cast<std::size_t>(i % 5 + 1), '\n');
    if (i % 3 == 0) content += "  \t";
  }
  EXPECT_EQ(documents(*open_jsonl_files(folder.write("data.jsonl", content))), expected);
}

TEST(JsonlFiles, ErrorsNameFileAndLine) {
  const TempFolder folder;
  const auto file = folder.write("data.jsonl",
                                 "{\"text\": \"fine\"}\n\n"
                                 "{\"text\": \n"
                                 "{\"txt\": \"a\"}\n"
                                 "{\"text\": 3}\n"
                                 "[1]\n"
                                 "{\"text\": \"\xff\"}\n"
                                 "{\"text\": \"\\ud800\"}\n");
  const auto source = open_jsonl_files(file);
  ASSERT_EQ(source->num_documents(), 7);
  const char* expected[] = {":3:10: not a JSON object: unexpected end of input",
                            ":4: the object has no \"text\"",
                            ":5: \"text\" is not a string",
                            ":6: expected a JSON object, found array",
                            ":7: byte 10",
                            ":8:17: not a JSON object: invalid string"};
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_THAT(data_error([&] { source->document(i + 1); }), HasSubstr(file.string() + expected[i]));
  }
  EXPECT_EQ(source->document(0), "fine");
  // The column counts from the start of the line, including leading blanks.
  const auto indented = folder.write("indented.jsonl", "{}\n   {text}\n");
  EXPECT_THAT(data_error([&] { open_jsonl_files(indented)->document(1); }),
              HasSubstr(indented.string() + ":2:6: not a"));
}

TEST(JsonlFiles, EmptyAndShrinkingFilesAreErrors) {
  const TempFolder folder;
  const auto blank = folder.write("blank.jsonl", " \n\n");
  EXPECT_THAT(data_error([&] { open_jsonl_files(blank); }), HasSubstr(blank.string()));
  const auto file = folder.write("data.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  const auto source = open_jsonl_files(file);
  std::filesystem::resize_file(file, 14);
  // The line that is still there fails as well: other bytes may have changed too.
  for (const int line : {0, 1}) {
    EXPECT_THAT(data_error([&] { source->document(line); }), AllOf(HasSubstr(file.string()), HasSubstr("shorter")));
  }
}

std::string gzip(const std::string& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, content.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& content) {
  std::string out(ZSTD_compressBound(content.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 3));
  return out;
}

struct CacheFolder {
  CacheFolder() { setenv("TITAN_DATA_CACHE", folder.path().c_str(), 1); }
  ~CacheFolder() { unsetenv("TITAN_DATA_CACHE"); }
  TempFolder folder;
};

std::string lines(int from, int to) {
  std::string content;
  for (int i = from; i < to; ++i) {
    content +=
        "{\"text\":\"" + std::to_string(i) + std::string(static_cast<std::size_t>(i * 7919 % 997), 'x') + "\"}\n";
  }
  return content;
}

// Covers several members and frames, padding, pieces larger than the buffers, and plain files among compressed ones.
TEST(JsonlFiles, ReadsGzipAndZstandard) {
  const CacheFolder cache;
  const TempFolder plain, packed;
  plain.write("a.jsonl", lines(0, 9000));
  packed.write("a.jsonl.gz", gzip(lines(0, 5000)) + gzip("") + gzip(lines(5000, 9000)) + std::string(512, '\0'));
  plain.write("b.json", lines(9000, 15000));
  packed.write("b.json.zst", zstd(lines(9000, 9001)) + zstd(lines(9001, 15000)));
  for (const TempFolder* folder : {&plain, &packed}) folder->write("c.jsonl", lines(15000, 15010));
  const auto expected = documents(*open_jsonl_files(plain.path()));
  ASSERT_EQ(expected.size(), 15010u);
  EXPECT_EQ(documents(*open_jsonl_files(packed.path())), expected);
  // The copies are found again, and a changed file gets a new one.
  EXPECT_EQ(documents(*open_jsonl_files(packed.path())), expected);
  packed.write("a.jsonl.gz", gzip("{\"text\": \"new\"}\n"));
  EXPECT_EQ(open_jsonl_files(packed.path())->document(0), "new");
}

TEST(JsonlFiles, DamagedCompressedFilesAreNamedWithTheLine) {
  const CacheFolder cache;
  const TempFolder folder;
  const std::string content = lines(0, 300);
  for (const std::string extension : {".gz", ".zst"}) {
    const std::string good = extension == ".gz" ? gzip(content) : zstd(content);
    for (const std::size_t length : {std::size_t{0}, std::size_t{5}, good.size() / 2, good.size() - 1}) {
      const auto file = folder.write("x.jsonl" + extension, good.substr(0, length));
      EXPECT_THAT(data_error([&] { open_jsonl_files(file); }),
                  AllOf(HasSubstr(file.string() + ":"), HasSubstr("cut short")))
          << length;
    }
    std::string damaged = good;
    damaged[good.size() / 2] ^= 0x55;
    damaged[good.size() / 2 + 1] ^= 0x55;
    const auto file = folder.write("y.jsonl" + extension, damaged);
    EXPECT_THAT(data_error([&] { open_jsonl_files(file); }), HasSubstr(file.string() + ":"));
    const auto bad_line =
        folder.write("z.jsonl" + extension, extension == ".gz" ? gzip("{}\n\n[\n") : zstd("{}\n\n[\n"));
    const auto source = open_jsonl_files(bad_line);
    EXPECT_THAT(data_error([&] { source->document(1); }), HasSubstr(bad_line.string() + ":3:2: not a JSON object"));
    std::filesystem::remove(bad_line);
  }
  for (const auto& entry : std::filesystem::directory_iterator(cache.folder.path())) {
    EXPECT_NE(entry.path().extension(), ".tmp") << "a half copy was left";
  }
}

TEST(TextFiles, AFileThatChangesIsAnError) {
  const TempFolder folder;
  const auto file = folder.write("a", "one");
  const auto source = open_text_files(folder.path());
  EXPECT_EQ(source->document(0), "one");
  folder.write("a", "three");
  EXPECT_THAT(data_error([&] { source->document(0); }), AllOf(HasSubstr(file.string()), HasSubstr("longer")));
}

TEST(Registry, KnowsTheKindsWhateverTheirCase) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"text\": \"a\"}\n");
  for (const std::string name : {"jsonl", "c4_test", "JSONL"}) {
    EXPECT_THAT(documents(*open_dataset(name, folder.path())), ElementsAre("a"));
  }
  EXPECT_THAT(documents(*open_dataset("text", folder.path())), ElementsAre("{\"text\": \"a\"}\n"));
}

// The name comes from a command line; a configuration's kinds are checked with its other keys.
TEST(Registry, UnknownNameGetsTheList) {
  EXPECT_THAT(data_error([] { open_dataset("jsnol", "x"); }),
              AllOf(HasSubstr("\"jsnol\""), HasSubstr("text, jsonl, chat, c4_test, c4, c4_validation, indexed")));
}

}  // namespace
}  // namespace titan::data
