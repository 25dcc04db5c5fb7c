// Tests what inspection lists, and that verification finds every fault.
#include "checkpoint/tools/inspect.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/format/zip_reader.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/tools/inspect_print.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/torchtitan_keys.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

std::vector<std::string> faults_of(const fs::path& checkpoint) {
  std::vector<std::string> texts;
  for (const Fault& fault : verify_checkpoint(checkpoint)) texts.push_back(fault.text);
  return texts;
}

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override { save_run(ck_, 5); }
  void overwrite(const std::string& name, const std::string& bytes) {
    std::ofstream(ck_ / name, std::ios::binary) << bytes;
  }
  // Rewrites .metadata and removes the sidecar, which would reveal the change.
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
  const std::string text = inspection_text(found, {});
  EXPECT_THAT(text, HasSubstr("layers.{0-11}.attention.wq.weight"));
  EXPECT_THAT(text, HasSubstr("12 x 192 B"));
  EXPECT_THAT(text, HasSubstr("20,480"));
  EXPECT_THAT(text, HasSubstr("583 parameters, float32"));
  EXPECT_THAT(text, HasSubstr(", by 2 ranks"));
  EXPECT_THAT(text, Not(HasSubstr("exp_avg")));
  EXPECT_THAT(text, HasSubstr("14 keys of the optimizer and the run, which --all lists"));
  EXPECT_THAT(inspection_text(found, {.pattern = "", .all = true}),
              AllOf(HasSubstr("optimizer.state.layers.{0-11}.attention.wq.weight.exp_avg"), HasSubstr("__1_0.distcp")));
  EXPECT_THAT(inspection_text(found, {}, {.model = "tiny", .loss = "3.5"}),
              AllOf(HasSubstr("tiny, 583 parameters"), HasSubstr("loss")));
  EXPECT_THAT(inspection_text(found, {.pattern = "layers.1*", .all = false}), HasSubstr("3 of 27 keys match"));
}

TEST_F(Inspect, VerifiesWhatIsWhole) { EXPECT_THAT(faults_of(ck_), ElementsAre()); }

// Covers bytes that no load reads as well: padding, headers, directories.
TEST_F(Inspect, FindsEveryFlippedByte) {
  for (const char* name : {"__0_0.distcp", "__1_0.distcp", ".metadata"}) {
    const std::string good = read_file(ck_ / name);
    for (std::size_t at = 0; at < good.size(); at += 211) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      overwrite(name, bad);
      EXPECT_FALSE(faults_of(ck_).empty()) << name << " byte " << at;
    }
    overwrite(name, good);
  }
  EXPECT_THAT(faults_of(ck_), ElementsAre());
}

TEST_F(Inspect, FindsAFlippedPayloadWithoutTheSidecar) {
  fs::remove(ck_ / kChecksumsFile);
  EXPECT_THAT(faults_of(ck_), ElementsAre());
  const Metadata metadata = read_metadata(ck_);
  const StorageLocation where = metadata.find_tensor("layers.7.attention.wq.weight")->chunks[1].location;
  const InputFile file(ck_ / where.relative_path);
  const ZipReader archive(file, where.offset, where.length, "x");
  std::string bytes = read_file(ck_ / where.relative_path);
  bytes[archive.payload_offset(archive.get("data/0")) + 11] ^= 1;
  overwrite(where.relative_path, bytes);
  EXPECT_THAT(faults_of(ck_), ElementsAre(HasSubstr("layers.7.attention.wq.weight")));
}

TEST_F(Inspect, ReportsAllFaultsAtOnce) {
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) {
    std::string bytes = read_file(ck_ / name);
    bytes[bytes.size() / 2] ^= 1;
    overwrite(name, bytes);
  }
  const auto faults = faults_of(ck_);
  EXPECT_THAT(faults, ::testing::Contains(HasSubstr("__0_0.distcp has the checksum")));
  EXPECT_THAT(faults, ::testing::Contains(HasSubstr("__1_0.distcp has the checksum")));
}

// A truncated file causes one fault for each of its records.
TEST_F(Inspect, ShowsTheFirstFaultsOfAFile) {
  fs::resize_file(ck_ / "__0_0.distcp", 1000);
  fs::remove(ck_ / "__1_0.distcp");
  const auto faults = verify_checkpoint(ck_);
  EXPECT_GT(faults.size(), 20u);
  const std::string text = faults_text(faults);
  EXPECT_EQ(std::ranges::count(text, '\n'), 7) << text;
  EXPECT_THAT(text, HasSubstr("more in __0_0.distcp"));
  EXPECT_THAT(text, HasSubstr("__1_0.distcp"));
  EXPECT_EQ(faults_text({{"a", "1"}, {"a", "2"}, {"a", "3"}, {"a", "4"}}), "  1\n  2\n  3\n  4\n");
}

TEST_F(Inspect, FindsBoxesThatDoNotMakeUpTheTensor) {
  const Metadata good = read_metadata(ck_);
  Metadata twice = good;  // rows 2 to 4 twice, 6 to 8 never: the number of elements is right
  std::get<TensorEntry>(twice.entries.at("layers.3.attention.wq.weight")).chunks[1].offsets = {2, 0};
  store(twice);
  EXPECT_THAT(faults_of(ck_),
              ElementsAre(HasSubstr("layers.3.attention.wq.weight: the boxes at [0, 0] and at [2, 0] overlap")));
  Metadata fewer = good;
  std::get<TensorEntry>(fewer.entries.at("norm.weight")).chunks.pop_back();
  store(fewer);
  EXPECT_THAT(faults_of(ck_), ElementsAre(HasSubstr("norm.weight: its 1 box holds 4 elements together")));
  Metadata other = good;  // both boxes say 4 rows, the archives say 4 x 6
  for (StoredChunk& chunk : std::get<TensorEntry>(other.entries.at("layers.3.attention.wq.weight")).chunks) {
    chunk.offsets = {chunk.offsets[0] * 2, 0};
    chunk.sizes = {8, 3};
  }
  std::get<TensorEntry>(other.entries.at("layers.3.attention.wq.weight")).size = {16, 3};
  store(other);
  EXPECT_THAT(faults_of(ck_), ElementsAre(HasSubstr("[4, 6], .metadata says [8, 3]"), HasSubstr("[4, 6]")));
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
  EXPECT_THAT(lines, ElementsAre("step-5 +full", "step-10 +full", "step-12 +model, optimizer", "step-15 -", "step-20 !",
                                 "step-25.tmp -"));
  EXPECT_EQ(newest_complete(steps)->name, "step-12");
  EXPECT_EQ(newest_complete(steps, "full")->name, "step-10");
  EXPECT_EQ(steps[1].ranks, 2);
  const std::vector<LoggedStep> rows = {{9, 4.25, 0, 0}, {10, 4.125, 0, 0}};
  const std::string text = steps_text(folder_.path(), steps, rows);
  EXPECT_THAT(text, HasSubstr("the newest"));
  EXPECT_THAT(text, HasSubstr("4.12500"));
  EXPECT_THAT(text, HasSubstr("4.12500 (step 10)"));
  EXPECT_TRUE(inspect_run(ck_).empty());
}

}  // namespace
}  // namespace titan::checkpoint
