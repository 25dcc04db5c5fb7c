#include "data/io/files.h"

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> relative_names(const TempFolder& folder, std::vector<std::string> extensions = {}) {
  std::vector<std::string> names;
  for (const auto& file : list_files(folder.path(), extensions)) {
    names.push_back(file.lexically_relative(folder.path()).string());
  }
  return names;
}

TEST(ListFiles, TakesPatternsOfTheShell) {
  const test::TemporaryFolder folder;
  for (const char* name : {"web-0/a.jsonl", "web-1/b.jsonl", "web-1/readme.md", "code/c.jsonl", ".web-2/d.jsonl"})
    folder.write(name, "{}");
  const std::vector<std::string> endings = {".jsonl"};
  const auto names = [&](const char* pattern) {
    std::vector<std::string> out;
    for (const auto& file : list_files(folder / pattern, endings))
      out.push_back(file.lexically_relative(folder_of(folder / pattern)).string());
    return out;
  };
  EXPECT_THAT(names("web-*"), testing::ElementsAre("web-0/a.jsonl", "web-1/b.jsonl"));
  EXPECT_THAT(names("*/[bc].*"), testing::ElementsAre("code/c.jsonl", "web-1/b.jsonl"));
  EXPECT_THAT(names("web-1/?.jsonl"), testing::ElementsAre("b.jsonl"));
  EXPECT_THAT(data_error([&] { list_files(folder / "*/*.md", endings); }),
              testing::HasSubstr("it matches 1 name, and no file ending in .jsonl"));
  EXPECT_THAT(data_error([&] { list_files(folder / "x*", endings); }), testing::HasSubstr("no such file or folder"));
  // A file with exactly this name is not taken as a pattern.
  folder.write("[a].jsonl", "{}");
  EXPECT_THAT(names("[a].jsonl"), testing::ElementsAre("[a].jsonl"));
}

TEST(ListFiles, SortsRelativePathsByBytesAndLeavesOutHiddenOnes) {
  const TempFolder folder;
  for (const char* name : {"b", "a/z", "a.txt", "Z", "a/.hidden", ".git/x", "\xc3\xa9"}) folder.write(name, "x");
  // '.' (0x2e) comes before '/' (0x2f), capitals before small letters, é last.
  EXPECT_THAT(relative_names(folder), ElementsAre("Z", "a.txt", "a/z", "b", "\xc3\xa9"));
  EXPECT_THAT(relative_names(folder, {".txt"}), ElementsAre("a.txt"));
}

TEST(ListFiles, FollowsLinks) {
  const TempFolder folder;
  const TempFolder elsewhere;
  std::filesystem::create_symlink(elsewhere.write("shard", "x"), folder.path() / "link");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder.path() / "more");
  EXPECT_THAT(relative_names(folder), ElementsAre("link", "more/shard"));
}

TEST(ListFiles, NamesALinkToNothing) {
  const TempFolder folder;
  folder.write("a.txt", "x");
  std::filesystem::create_symlink("gone/b.txt", folder.path() / "b.txt");
  EXPECT_THAT(data_error([&] { list_files(folder.path(), {}); }),
              HasSubstr((folder.path() / "b.txt").string() + ": it is a link to gone/b.txt, which is not there"));
  // A broken link with an ending that is not wanted is ignored.
  const std::vector<std::string> wanted = {".jsonl", ".txt"};
  std::filesystem::rename(folder.path() / "b.txt", folder.path() / "b.md");
  EXPECT_THAT(relative_names(folder, wanted), ElementsAre("a.txt"));
}

TEST(ListFiles, SaysWhatItLookedFor) {
  const TempFolder folder;
  EXPECT_THAT(data_error([&] { list_files(folder.path() / "missing", {}); }), HasSubstr("missing"));
  EXPECT_THAT(data_error([&] { list_files(folder.path(), {}); }), HasSubstr("holds nothing"));
  folder.write("part.jsonl.gz", "x");
  const std::vector<std::string> wanted = {".jsonl"};
  EXPECT_THAT(data_error([&] { list_files(folder.path(), wanted); }),
              ::testing::AllOf(HasSubstr(".jsonl"), HasSubstr("1 entry: part.jsonl.gz")));
}

TEST(InputFile, AFileThatShrinksIsAnError) {
  const TempFolder folder;
  const auto path = folder.write("data", "0123456789");
  const InputFile file(path);
  std::string bytes(4, '\0');
  file.read_at(6, bytes);
  EXPECT_EQ(bytes, "6789");
  std::filesystem::resize_file(path, 8);
  EXPECT_THAT(data_error([&] { file.read_at(6, bytes); }),
              ::testing::AllOf(HasSubstr(path.string()), HasSubstr("shorter"), HasSubstr("10 bytes")));
}

}  // namespace
}  // namespace titan::data
