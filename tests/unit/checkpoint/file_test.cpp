// Tests files written in blocks: any size, in pieces of any size, around the page cache and through it.
#include "checkpoint/io/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/io/read_error.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 4 << 20;  // as in file.cpp

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
  return bytes;
}

void write_in_pieces(const fs::path& path, const std::string& bytes, std::size_t piece) {
  OutputFile file(path);
  for (std::size_t done = 0; done < bytes.size(); done += piece)
    file.append(bytes.data() + done, std::min(piece, bytes.size() - done));
  EXPECT_EQ(file.position(), bytes.size());
  EXPECT_EQ(file.crc(), crc32(0, bytes.data(), bytes.size()));
  file.finish();
}

class OutputFileIn : public ::testing::TestWithParam<const char*> {};

TEST_P(OutputFileIn, HasEveryByteInItsPlace) {
  const fs::path folder = fs::path(GetParam()) / ("titan-file-test-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 3 * kBlock + 12345}) {
    const std::string bytes = pattern(size);
    for (const std::size_t piece : {std::size_t{100'003}, 2 * kBlock + 7}) {
      write_in_pieces(folder / "file", bytes, piece);
      EXPECT_TRUE(read_file(folder / "file") == bytes) << size << " bytes in pieces of " << piece;
    }
  }
  fs::remove_all(folder);
}

// A disk's file system, written around the page cache, and memory's, where many systems do not allow that.
INSTANTIATE_TEST_SUITE_P(Files, OutputFileIn, ::testing::Values(".", "/dev/shm"),
                         [](const auto& folder) { return std::string(folder.index == 0 ? "Disk" : "Memory"); });

// A name that is too long, which stands for all errors of the system that are not about the content.
const std::string kTooLong(300, 'x');

TEST(InputFile, TellsErrorsOfTheSystemFromMissingFiles) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "folder");
  fs::create_symlink("loop", folder / "loop");
  for (const char* name : {"missing", "folder", "loop"}) {
    try {
      InputFile file(folder / name);
      ADD_FAILURE() << name;
    } catch (const ReadError& error) {
      ADD_FAILURE() << error.what();
    } catch (const CheckpointError&) {  // damage
    }
  }
  EXPECT_THROW(InputFile(folder / kTooLong), ReadError);
}

TEST(ReadErrors, WhatIsThereIsToldFromWhatCannotBeTold) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "folder");
  write_file_atomically(folder / "file", "abc");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(type_of(folder / "folder"), fs::file_type::directory);
  EXPECT_EQ(type_of(folder / "file/x"), fs::file_type::not_found);
  EXPECT_TRUE(is_file(folder / "file"));
  EXPECT_FALSE(is_there(folder / "loop"));
  EXPECT_EQ(size_of(folder / "file"), 3);
  EXPECT_EQ(size_of(folder / "folder"), std::nullopt);
  EXPECT_EQ(listing_of(folder.path()).size(), 3);
  EXPECT_TRUE(listing_of(folder / "file").empty());
  EXPECT_TRUE(listing_of(folder / "missing").empty());
  EXPECT_THROW(is_there(folder / kTooLong), ReadError);
  EXPECT_THROW(listing_of(folder / kTooLong), ReadError);
}

TEST(OutputFile, AFullDiskIsAnError) {
  OutputFile file("/dev/full");
  const std::string bytes = pattern(3 * kBlock);
  EXPECT_THROW(
      {
        file.append(bytes.data(), bytes.size());
        file.finish();
      },
      CheckpointError);
}

}  // namespace
}  // namespace titan::checkpoint
