// Tests checksums of full files, and that a load at any number of ranks finds every changed byte.
#include "checkpoint/io/checksums.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/io/crc32.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string random_bytes(std::size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(Crc32, KnownAnswer) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32_plain(0, "123456789", 9), 0xCBF43926u);
}

TEST(Crc32, FastOneEqualsPlainOneAtAnySizeAndPlace) {
  const std::string bytes = random_bytes(5000);
  for (std::size_t size = 0; size < 1200; ++size) {
    for (const std::size_t at : {0, 1, 7, 16}) {
      ASSERT_EQ(crc32(0x1234567u, bytes.data() + at, size), crc32_plain(0x1234567u, bytes.data() + at, size))
          << size << " at " << at;
    }
  }
  EXPECT_EQ(crc32(0, bytes.data(), bytes.size()), crc32_plain(0, bytes.data(), bytes.size()));
}

TEST(Crc32, CombinesWithoutTheBytes) {
  const std::string bytes = random_bytes(4000);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 37) {
    const std::uint32_t first = crc32_plain(0, bytes.data(), cut);
    const std::uint32_t second = crc32_plain(0, bytes.data() + cut, bytes.size() - cut);
    ASSERT_EQ(crc32_combine(first, second, bytes.size() - cut), crc32_plain(0, bytes.data(), bytes.size())) << cut;
  }
}

TEST(Pieces, JoinInAnyOrderAndOverReplicas) {
  const std::string bytes = random_bytes(1000);
  const auto piece = [&](std::uint64_t begin, std::uint64_t size) {
    return Piece{begin, size, crc32(0, bytes.data() + begin, size)};
  };
  const auto whole = join_pieces({piece(600, 400), piece(0, 100), piece(100, 500), piece(100, 500), piece(600, 0)});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].size, 1000u);
  EXPECT_EQ(whole[0].crc, crc32(0, bytes.data(), bytes.size()));
  EXPECT_EQ(join_pieces({piece(0, 100), piece(101, 9)}).size(), 2u);
  EXPECT_EQ(join_pieces({piece(0, 100), piece(50, 100)}).size(), 2u);
}

TEST(OutputFileCrc, IsThatOfTheFile) {
  const TemporaryFolder folder;
  const std::string large = random_bytes(200000);
  OutputFile file(folder / "f");
  file.append("head", 4);
  file.append(large.data(), large.size());
  file.append(large.data(), 999, crc32(0, large.data(), 999));
  file.append("tail", 4);
  file.finish();
  EXPECT_EQ(file.crc(), checksum_of(read_file(folder / "f")).crc);
}

std::vector<Item> sample(int rank, int size) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : sample_tensors()) items.push_back(shard(name, tensor, rank, size));
  items.push_back(replicate("whole", at::arange(5000, at::kFloat)));
  items.push_back(value("step", 3));
  return items;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void save_on(int size, const fs::path& folder, const SaveOptions& options = {}) {
  expect_no_errors(run_ranks(size, [&](Ranks& ranks) { save(folder, sample(ranks.rank(), size), ranks, options); }));
}

// Returns "" if all of `size` ranks load the content, else the error message that all ranks have, prefixed with
// "damaged: " for a DamagedCheckpoint.
std::string load_error(int size, const fs::path& folder) {
  const auto errors = run_ranks(size, [&](Ranks& ranks) {
    auto items = sample(ranks.rank(), size);
    const auto wanted = sample(ranks.rank(), size);
    for (Item& item : items)
      if (auto* tensor = std::get_if<TensorItem>(&item)) tensor->local.zero_();
    try {
      load(folder, items, ranks);
    } catch (const DamagedCheckpoint& error) {
      throw std::runtime_error(std::string("damaged: ") + error.what());
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto* tensor = std::get_if<TensorItem>(&items[i]);
      if (tensor != nullptr && !tensor->local.equal(std::get<TensorItem>(wanted[i]).local))
        throw std::runtime_error("WRONG CONTENT");
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  return errors[0];
}

void expect_true_checksums(const fs::path& folder) {
  const auto checksums = read_checksums(folder);
  ASSERT_TRUE(checksums);
  std::size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == kChecksumsFile) continue;
    ++num_files;
    ASSERT_TRUE(checksums->files.contains(name)) << name;
    EXPECT_EQ(checksums->files.at(name), checksum_of(read_file(entry.path()))) << name;
  }
  EXPECT_EQ(num_files, checksums->files.size());
}

void flip(const fs::path& file, std::uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(byte);
}

TEST(SavedChecksums, AreThoseOfAllFiles) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2, 3}) {
    for (const int files : {1, 3}) {
      save_on(ranks, folder / "ck", {.files_per_rank = files});
      expect_true_checksums(folder / "ck");
      EXPECT_EQ(fs::exists(folder / "ck" / "__0_2.distcp"), files == 3);
      EXPECT_EQ(load_error(2, folder / "ck"), "");
    }
  }
}

TEST(SavedFiles, AreAboutEquallyLarge) {
  const TemporaryFolder folder;
  std::vector<Item> items;
  for (int i = 0; i < 40; ++i) items.push_back(replicate("t" + std::to_string(i), at::ones({100 + 37 * i, 50})));
  run_ranks(1, [&](Ranks& ranks) { save(folder / "ck", items, ranks, {.files_per_rank = 4}); });
  std::uintmax_t least = UINTMAX_MAX, most = 0;
  for (int i = 0; i < 4; ++i) {
    const auto size = fs::file_size(folder / "ck" / ("__0_" + std::to_string(i) + ".distcp"));
    least = std::min(least, size);
    most = std::max(most, size);
  }
  // The smallest tensors come last, so the files differ by less than some of them.
  EXPECT_LT(most - least, 3u * 100 * 50 * 4);
}

// Every flipped byte of a payload is found, however the ranks split the reads.
TEST(LoadVerifies, RecordsThatAreReadInParts) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  const fs::path data = folder / "ck" / "__0_0.distcp";
  const std::string bytes = read_file(data);
  const at::Tensor large = at::arange(300000, at::kFloat).sqrt();
  const auto at = bytes.find(std::string(static_cast<const char*>(large.const_data_ptr()) + 4, 64)) - 4;
  ASSERT_LT(at, bytes.size());
  for (const std::uint64_t offset : {0, 400001, 799999, 1199999}) {
    flip(data, at + offset);
    for (const int readers : {1, 2, 3, 5}) {
      const std::string error = load_error(readers, folder / "ck");
      EXPECT_THAT(error, HasSubstr("damaged: ")) << readers;
      EXPECT_THAT(error, HasSubstr("do not match their checksum")) << readers;
      EXPECT_THAT(error, HasSubstr("large in ")) << readers;
    }
    flip(data, at + offset);
  }
  EXPECT_EQ(load_error(3, folder / "ck"), "");
}

// Rows that no rank asks for are read for the checksum alone, by one of the ranks.
TEST(LoadVerifies, WhatNobodyReads) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  const fs::path data = folder / "ck" / "__0_0.distcp";
  const auto load_few_rows = [&] {
    const auto errors = run_ranks(2, [&](Ranks& ranks) {
      const std::int64_t begin = ranks.rank() == 0 ? 0 : 5;  // the tensor has 300 rows
      load(folder / "ck",
           {TensorItem{"large", {"large"}, at::zeros({7, 1000}), {{300, 1000}, {begin, 0}, {7, 1000}}, true}}, ranks);
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  EXPECT_EQ(load_few_rows(), "");
  const at::Tensor last = at::scalar_tensor(299999, at::kFloat).sqrt();
  const auto at = read_file(data).rfind(std::string(static_cast<const char*>(last.const_data_ptr()), 4));
  flip(data, at);
  EXPECT_THAT(load_few_rows(), HasSubstr("large in __0_0.distcp"));
}

TEST(LoadVerifies, TheFilesByTheirSidecar) {
  const TemporaryFolder folder;
  save_on(2, folder / "ck");
  const fs::path metadata = folder / "ck" / ".metadata";
  const std::string good = read_file(metadata);
  // Decoding ignores these informative fields.
  const auto at = good.find("checkpoint_id");
  ASSERT_NE(at, std::string::npos);
  flip(metadata, at);
  EXPECT_THAT(load_error(2, folder / "ck"), HasSubstr(".metadata has the checksum"));
  flip(metadata, at);
  EXPECT_EQ(load_error(2, folder / "ck"), "");
  // The save id is covered as well.
  const auto id = good.find(read_metadata(folder / "ck").save_id);
  ASSERT_NE(id, std::string::npos);
  flip(metadata, id + 3);
  EXPECT_THAT(load_error(2, folder / "ck"), HasSubstr(".metadata has the checksum"));
  flip(metadata, id + 3);
  // Bytes after the last archive, which no reader would touch.
  std::ofstream(folder / "ck" / "__1_0.distcp", std::ios::app) << "x";
  EXPECT_THAT(load_error(1, folder / "ck"), HasSubstr("damaged: "));
  EXPECT_THAT(load_error(1, folder / "ck"), HasSubstr("__1_0.distcp has "));
}

TEST(LoadVerifies, TheSidecarItself) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  const fs::path sidecar = folder / "ck" / kChecksumsFile;
  const std::string good = read_file(sidecar);
  for (const std::string& bad :
       {std::string(), std::string("[]"), good.substr(0, good.size() / 2),
        std::string(R"({"format":2,"algorithm":"crc32","save_id":"","files":{}})"),
        std::string(R"({"format":1,"algorithm":"crc32","save_id":"","files":{"a":{"size":-1,"crc32":"00000000"}}})"),
        std::string(R"({"format":1,"algorithm":"crc32","save_id":"","files":{"a":{"size":1,"crc32":"xyz"}}})"),
        std::string(
            R"({"format":1,"algorithm":"crc32","save_id":"","files":{"../a":{"size":1,"crc32":"00000000"}}})")}) {
    std::ofstream(sidecar) << bad;
    EXPECT_THAT(load_error(2, folder / "ck"), HasSubstr("titan.checksums.json is damaged")) << bad;
  }
  fs::remove(sidecar);  // PyTorch's checkpoints have none
  EXPECT_EQ(load_error(2, folder / "ck"), "");
}

// PyTorch overwrites its own files in place and leaves our sidecar.
TEST(LoadVerifies, NotByChecksumsOfAnOlderSave) {
  const TemporaryFolder folder;
  save_on(2, folder / "old");
  save_on(1, folder / "ck");
  fs::copy_file(folder / "old" / kChecksumsFile, folder / "ck" / kChecksumsFile, fs::copy_options::overwrite_existing);
  EXPECT_EQ(load_error(2, folder / "ck"), "");
}

TEST(HuggingFaceChecksums, AreWrittenByAnyRanksAndVerifiedByAny) {
  const HuggingFaceFormat format{{.to_hub =
                                      [](const std::string& fqn) {
                                        return std::vector{HubTensor{"hf." + fqn, fqn == "wq" ? 4 : 0}};
                                      }},
                                 [](c10::ScalarType) {
                                   return SmallFiles{{"config.json", "{}\n"}};
                                 }};
  const at::Tensor wq = at::rand({32, 20}), up = at::rand({50, 11});
  for (const int writers : {1, 2, 3}) {
    const TemporaryFolder folder;
    expect_no_errors(run_ranks(writers, [&](Ranks& ranks) {
      save_hugging_face(folder / "hf",
                        {shard("wq", wq, ranks.rank(), writers), shard("up", up, ranks.rank(), writers),
                         replicate("norm", at::ones({7}))},
                        format, c10::ScalarType::Float, ranks, 3000);
    }));
    expect_true_checksums(folder / "hf");
    const fs::path first = folder / "hf" / "model-00001-of-00002.safetensors";
    const auto load_error = [&](int readers) {
      return run_ranks(readers, [&](Ranks& ranks) {
        load_hugging_face(folder / "hf", {shard("up", up, ranks.rank(), readers)}, format, ranks);
      })[0];
    };
    EXPECT_EQ(load_error(3), "");
    flip(first, fs::file_size(first) - 1);
    for (const int readers : {1, 2, 5})
      EXPECT_THAT(load_error(readers), HasSubstr("model-00001-of-00002.safetensors has the checksum")) << readers;
  }
}

}  // namespace
}  // namespace titan::checkpoint
