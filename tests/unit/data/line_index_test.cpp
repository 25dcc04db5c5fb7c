// Checks that lines are found where they begin, and that their index is made once.
#include "data/io/line_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <deque>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace titan::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

constexpr std::uint64_t kKeepAll = 1, kKeepNone = std::uint64_t{1} << 40;

class LineIndexTest : public testing::Test {
 protected:
  LineIndexTest() {
    const char* const before = std::getenv("TITAN_DATA_CACHE");
    if (before) before_ = before;
    setenv("TITAN_DATA_CACHE", (folder_ / "cache").c_str(), 1);
  }
  ~LineIndexTest() override {
    if (before_.empty()) {
      unsetenv("TITAN_DATA_CACHE");
    } else {
      setenv("TITAN_DATA_CACHE", before_.c_str(), 1);
    }
  }

  LineIndex index(const std::vector<fs::path>& paths, std::uint64_t worth_keeping) {
    std::vector<IndexedFile> files;
    for (const auto& path : paths) files.push_back({path, &open_.emplace_back(path)});
    return index_lines(files, worth_keeping);
  }
  fs::path kept() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().extension() == ".lines") return entry.path();
    return {};
  }

  test::TemporaryFolder folder_;
  std::string before_;
  std::deque<InputFile> open_;
};

TEST_F(LineIndexTest, LeavesOutBlankLinesAndTheByteOrderMark) {
  const std::vector<fs::path> paths = {folder_.write("a", "\xEF\xBB\xBF  one\n\n \t\r\ntwo"), folder_.write("b", ""),
                                       folder_.write("c", "\n\n"), folder_.write("d", "x\ny\n")};
  for (const auto worth_keeping : {kKeepNone, kKeepAll, kKeepAll}) {
    const auto found = index(paths, worth_keeping);
    EXPECT_THAT(found.starts, ElementsAre(5, 14, 0, 2));
    EXPECT_THAT(found.ends, ElementsAre(2, 2, 2, 4));
  }
}

TEST_F(LineIndexTest, FewBytesAreNotKept) {
  index({folder_.write("a", "x\ny\n")}, kKeepNone);
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

// The content changes but its size and time do not: reading the file again would find other lines.
TEST_F(LineIndexTest, ASecondStartDoesNotReadTheFiles) {
  const auto path = folder_.write("a", "x\ny\nz\n");
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4));
  const auto time = fs::last_write_time(path);
  folder_.write("a", "xx\nyy\n");
  fs::last_write_time(path, time);
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4));
  EXPECT_THAT(index({path}, kKeepNone).starts, ElementsAre(0, 3));
}

TEST_F(LineIndexTest, ChangedMovedOrFurtherFilesHaveAnother) {
  const auto path = folder_.write("a", "x\ny\n");
  index({path}, kKeepAll);
  folder_.write("a", "x\n1\n2\n");
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4));
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4));
  const auto more = folder_.write("b", "z\n");
  EXPECT_THAT(index({path, more}, kKeepAll).ends, ElementsAre(3, 4));
  EXPECT_THAT(index({more, path}, kKeepAll).ends, ElementsAre(1, 4));
}

TEST_F(LineIndexTest, ADamagedIndexIsNotBelieved) {
  const auto path = folder_.write("a", "x\ny\nz\n");
  index({path}, kKeepAll);
  ASSERT_FALSE(kept().empty());
  for (const auto size : {fs::file_size(kept()) - 1, std::uintmax_t{20}, std::uintmax_t{0}}) {
    fs::resize_file(kept(), size);
    EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4)) << size;
  }
  std::ofstream(kept()) << std::string(56, 'x');
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAre(0, 2, 4));
}

TEST_F(LineIndexTest, WithoutACacheTheFilesAreRead) {
  setenv("TITAN_DATA_CACHE", (folder_.write("file", "") / "below").c_str(), 1);
  EXPECT_THAT(index({folder_.write("a", "x\ny\n")}, kKeepAll).starts, ElementsAre(0, 2));
  EXPECT_THAT(index({}, kKeepAll).starts, IsEmpty());
}

// More lines than one read chunk holds, with blank ones at its border.
TEST_F(LineIndexTest, LinesAcrossChunksAreWhole) {
  std::string text;
  std::vector<std::uint64_t> expected;
  for (int i = 0; text.size() < (std::size_t{3} << 20); ++i) {
    expected.push_back(text.size());
    text += std::string(static_cast<std::size_t>(i % 700 + 1), 'x') + (i % 5 == 0 ? "\n\n" : "\n");
  }
  const auto path = folder_.write("a", text);
  EXPECT_THAT(index({path}, kKeepNone).starts, ElementsAreArray(expected));
  EXPECT_THAT(index({path}, kKeepAll).starts, ElementsAreArray(expected));
}

}  // namespace
}  // namespace titan::data
