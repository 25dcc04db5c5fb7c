// What inspection lists, and that verification finds every fault.
#include "checkpoint/inspect.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/checksums.h"
#include "checkpoint/inspect_print.h"
#include "checkpoint/planner.h"
#include "checkpoint/torchtitan_keys.h"
#include "checkpoint/zip_reader.h"
#include "tests/unit/checkpoint/sharding.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void save_run(const fs::path& folder, int step) {
  const auto errors = run_ranks(2, [&](Ranks& ranks) {
    std::vector<Item> items;
    for (int layer = 0; layer < 12; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".attention.wq.weight";
      items.push_back(shard(name, at::rand({8, 6}), ranks.rank(), 2));
      items.push_back(shard("optimizer.state." + name + ".exp_avg", at::rand({8, 6}), ranks.rank(), 2));
    }
    items.push_back(shard("norm.weight", at::ones({7}), ranks.rank(), 2));
    if (step >= 0) append_train_state(items, {step, 4096 * step});
    save(folder, items, ranks);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
}

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override { save_run(ck_, 5); }
  void overwrite(const std::string& name, const std::string& bytes) {
    std::ofstream(ck_ / name, std::ios::binary) << bytes;
  }
  // Writes .metadata anew, without the sidecar, which would notice.
  void store(const Metadata& metadata) {
    StorageOrder order;
    for (const std::string& fqn : metadata.order) {
      const TensorEntry* tensor = metadata.find_tensor(fqn);
      if (tensor == nullptr) order.emplace_back(fqn, std::nullopt);
      for (std::size_t i = 0; tensor != nullptr && i < tensor->chunks.size(); ++i) order.emplace_back(fqn, i);
    }
    overwrite(".metadata", encode_metadata(metadata, order, ck_, "id"));
    fs::remove(ck_ / kChecksumsFile);
  }

  TemporaryFolder folder_;
  fs::path ck_ = folder_ / "step-5";
};

TEST_F(Inspect, ListsKeysSumsAndFiles) {
  const Inspection found = inspect_checkpoint(ck_);
  EXPECT_EQ(found.step, 5);
  EXPECT_EQ(found.tokens_seen, 5 * 4096);
  EXPECT_TRUE(found.has_checksums);
  EXPECT_EQ(found.save_id.size(), 36u);
  ASSERT_EQ(found.keys.size(), 27u);
  const auto wq = matching_keys(found.keys, "layers.3.*");
  ASSERT_EQ(wq.size(), 1u);
  EXPECT_EQ(wq[0].name, "layers.3.attention.wq.weight");
  EXPECT_EQ(wq[0].group, "model");
  EXPECT_EQ(wq[0].dtype, "float32");
  EXPECT_THAT(wq[0].shape, ElementsAre(8, 6));
  EXPECT_EQ(wq[0].shards, 2u);
  EXPECT_EQ(wq[0].bytes, 8u * 6 * 4);
  EXPECT_EQ(matching_keys(found.keys, "exp_avg").size(), 12u);
  ASSERT_EQ(found.files.size(), 4u);  // two of data, .metadata, checksums
  const std::string text = inspection_text(found, "");
  EXPECT_THAT(text, HasSubstr("layers.{0-11}.attention.wq.weight"));
  EXPECT_THAT(text, HasSubstr("12 x 192 B"));
  EXPECT_THAT(text, HasSubstr("20,480"));
  EXPECT_THAT(inspection_text(found, "layers.1*"), HasSubstr("3 of 27 keys match"));
}

TEST_F(Inspect, VerifiesWhatIsWhole) { EXPECT_THAT(verify_checkpoint(ck_), ElementsAre()); }

// Also bytes that no load reads: padding, headers, directories.
TEST_F(Inspect, FindsEveryFlippedByte) {
  for (const char* name : {"__0_0.distcp", "__1_0.distcp", ".metadata"}) {
    const std::string good = read_file(ck_ / name);
    for (std::size_t at = 0; at < good.size(); at += 211) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      overwrite(name, bad);
      EXPECT_FALSE(verify_checkpoint(ck_).empty()) << name << " byte " << at;
    }
    overwrite(name, good);
  }
  EXPECT_THAT(verify_checkpoint(ck_), ElementsAre());
}

TEST_F(Inspect, FindsAFlippedPayloadWithoutTheSidecar) {
  fs::remove(ck_ / kChecksumsFile);
  EXPECT_THAT(verify_checkpoint(ck_), ElementsAre());
  const Metadata metadata = read_metadata(ck_);
  const StorageLocation where = metadata.find_tensor("layers.7.attention.wq.weight")->chunks[1].location;
  const InputFile file(ck_ / where.relative_path);
  const ZipReader archive(file, where.offset, where.length, "x");
  std::string bytes = read_file(ck_ / where.relative_path);
  bytes[archive.payload_offset(archive.get("data/0")) + 11] ^= 1;
  overwrite(where.relative_path, bytes);
  EXPECT_THAT(verify_checkpoint(ck_), ElementsAre(HasSubstr("layers.7.attention.wq.weight")));
}

TEST_F(Inspect, ReportsAllFaultsAtOnce) {
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) {
    std::string bytes = read_file(ck_ / name);
    bytes[bytes.size() / 2] ^= 1;
    overwrite(name, bytes);
  }
  const auto faults = verify_checkpoint(ck_);
  EXPECT_THAT(faults, ::testing::Contains(HasSubstr("__0_0.distcp has the checksum")));
  EXPECT_THAT(faults, ::testing::Contains(HasSubstr("__1_0.distcp has the checksum")));
}

TEST_F(Inspect, FindsBoxesThatDoNotMakeUpTheTensor) {
  const Metadata good = read_metadata(ck_);
  Metadata twice = good;  // rows 2 to 4 twice, 6 to 8 never: the number of elements is right
  std::get<TensorEntry>(twice.entries.at("layers.3.attention.wq.weight")).chunks[1].offsets = {2, 0};
  store(twice);
  EXPECT_THAT(verify_checkpoint(ck_),
              ElementsAre(HasSubstr("layers.3.attention.wq.weight: the boxes at [0, 0] and at [2, 0] overlap")));
  Metadata fewer = good;
  std::get<TensorEntry>(fewer.entries.at("norm.weight")).chunks.pop_back();
  store(fewer);
  EXPECT_THAT(verify_checkpoint(ck_), ElementsAre(HasSubstr("norm.weight: its 1 boxes hold 4 elements together")));
  Metadata other = good;  // both boxes say 4 rows, the archives say 4 x 6
  for (Chunk& chunk : std::get<TensorEntry>(other.entries.at("layers.3.attention.wq.weight")).chunks) {
    chunk.offsets = {chunk.offsets[0] * 2, 0};
    chunk.sizes = {8, 3};
  }
  std::get<TensorEntry>(other.entries.at("layers.3.attention.wq.weight")).size = {16, 3};
  store(other);
  EXPECT_THAT(verify_checkpoint(ck_), ElementsAre(HasSubstr("[4, 6], .metadata says [8, 3]"), HasSubstr("[4, 6]")));
}

TEST_F(Inspect, ListsARun) {
  save_run(folder_ / "step-10", 10);
  save_run(folder_ / "step-12", -1);
  save_run(folder_ / "step-15", 15);
  fs::remove(folder_ / "step-15" / ".metadata");
  save_run(folder_ / "step-20", 20);
  fs::resize_file(folder_ / "step-20" / "__1_0.distcp", 100);
  fs::create_directory(folder_ / "step-25.tmp");
  fs::create_directory(folder_ / "notes");
  const auto steps = inspect_run(folder_.path());
  std::vector<std::string> lines;
  for (const StepInfo& step : steps) {
    using State = StepInfo::State;
    lines.push_back(step.name +
                    (step.state == State::kComplete  ? " +"
                     : step.state == State::kDamaged ? " !"
                                                     : " -") +
                    step.holds);
  }
  EXPECT_THAT(lines, ElementsAre("step-5 +full", "step-10 +full", "step-12 +model only", "step-15 -", "step-20 !",
                                 "step-25.tmp -"));
  EXPECT_THAT(run_text(folder_.path(), steps), HasSubstr("the newest"));
  EXPECT_TRUE(inspect_run(ck_).empty());
}

}  // namespace
}  // namespace titan::checkpoint
