#include "data/io/file_facts.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>

#include "support.h"

namespace titan::data {
namespace {

namespace fs = std::filesystem;

std::vector<FileFacts> facts(const TempFolder& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path())) files.push_back(entry.path());
  std::ranges::sort(files);
  return facts_of(files, folder.path());
}

void touch(const fs::path& file) { fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1)); }

TEST(FileFacts, HaveNamesThatAreNotUtf8) {
  const TempFolder folder;
  folder.write("caf\xe9.txt", "one");
  const auto found = facts(folder);
  EXPECT_EQ(found.at(0).name, "caf\\xE9.txt");
  EXPECT_EQ(differences_of_texts(facts_to_text({found}), facts_to_text({found})), "");
}

TEST(FileFacts, TellDataFromOtherData) {
  const TempFolder folder;
  const auto small = folder.write("a", "one");
  const auto large = folder.write("b", std::string((3 << 20) + 17, 'x'));
  folder.write("c", "");
  const auto before = facts(folder);
  EXPECT_EQ(file_differences(before, facts(folder)), "");
  EXPECT_EQ(file_differences(file_facts_from_json(to_json(before)), before), "");
  touch(small);  // read in full: a copy is the same
  EXPECT_EQ(file_differences(before, facts(folder)), "");
  touch(large);
  EXPECT_EQ(file_differences(before, facts(folder)), "b has been written to since (its time of change is another)");
  const auto touched = facts(folder);
  folder.write("a", "two");
  EXPECT_EQ(file_differences(touched, facts(folder)), "a has other content of the same size");
  folder.write("a", "three");
  fs::remove(folder.path() / "c");
  folder.write("d", "");
  EXPECT_EQ(file_differences(touched, facts(folder)), "a had 3 bytes and has 5; d was not there; c is gone");
}

// The checksum of a large file covers its first block, its last and some between.
TEST(FileFacts, LookAtBlocksOfLargeFiles) {
  const TempFolder folder;
  std::string content(5 << 20, 'x');
  const auto checksum_with = [&](std::size_t at) {
    std::string other = content;
    other[at] = 'y';
    return facts_of({folder.write("a", other)}, folder.path())[0].checksum;
  };
  const auto plain = facts_of({folder.write("a", content)}, folder.path())[0].checksum;
  for (const std::size_t at : {std::size_t{0}, content.size() - 1, (content.size() - (64 << 10)) / 15 * 7})
    EXPECT_NE(checksum_with(at), plain) << at;
}

}  // namespace
}  // namespace titan::data
