#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/io/file.h"
#include "tests/support/message_of.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<Item> sharded_sample(int rank, int size) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : sample_tensors()) items.push_back(shard(name, tensor, rank, size));
  items.push_back(replicate("step", at::scalar_tensor(7)));
  items.push_back(value("lr", Value::list({0.5})));
  items.push_back(value("rank_" + std::to_string(rank), rank));
  return items;
}

std::vector<Item> emptied(std::vector<Item> items) {
  for (Item& item : items)
    if (auto* tensor = std::get_if<TensorItem>(&item)) tensor->local.zero_();
  return items;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void save_on(int size, const fs::path& folder) {
  expect_no_errors(run_ranks(size, [&](Ranks& ranks) { save(folder, sharded_sample(ranks.rank(), size), ranks); }));
}

void expect_loads_on(int size, const fs::path& folder) {
  expect_no_errors(run_ranks(size, [&](Ranks& ranks) {
    auto items = emptied(sharded_sample(ranks.rank(), size));
    std::erase_if(items, [](const Item& item) { return item_fqn(item).starts_with("rank_"); });
    items.push_back(value("rank_0", 0));
    const Values values = load(folder, items, ranks);
    const auto expected = sharded_sample(ranks.rank(), size);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto* want = std::get_if<TensorItem>(&expected[i]);
      if (want != nullptr && !at::equal(std::get<TensorItem>(items[i]).local, want->local))
        throw CheckpointError(want->fqn + " differs");
    }
    if (values.at("lr") != Value::list({0.5}) || values.at("rank_0") != Value(0))
      throw CheckpointError("values differ");
  }));
}

TEST(CheckpointIo, AnyNumberOfRanksReadsAnyNumbersCheckpoint) {
  const TemporaryFolder folder;
  for (const int writers : {1, 2, 3}) {
    save_on(writers, folder / "ck");  // over the previous one
    EXPECT_FALSE(fs::exists(folder / "ck.tmp"));
    for (const int readers : {1, 2, 3, 5}) expect_loads_on(readers, folder / "ck");
  }
}

TEST(CheckpointIo, AProcessGroupOfOneWorks) {
  const TemporaryFolder folder;
  dist::ProcessGroup group("world", {0}, 0, {}, {});
  EXPECT_GT(save(folder / "ck/", sharded_sample(0, 1), group), 1200000u);  // "large" alone has 1.2 MB
  auto items = emptied(sharded_sample(0, 1));
  load(folder / "ck", items, group);
  EXPECT_TRUE(at::equal(std::get<TensorItem>(items[0]).local, sample_tensors()[0].second));
}

TEST(CheckpointIo, ColumnShardsAndOtherTypesLoad) {
  const TemporaryFolder folder;
  save_on(3, folder / "ck");
  run_ranks(1, [&](Ranks& ranks) {
    const at::Tensor whole = sample_tensors()[1].second;  // "uneven" [5, 7]
    TensorItem item{"uneven", {"uneven"}, at::zeros({5, 3}, at::kBFloat16), {{5, 7}, {0, 2}, {5, 3}}, true};
    item.local.requires_grad_(true);
    load(folder / "ck", {item}, ranks);
    EXPECT_TRUE(at::equal(item.local.detach(), whole.narrow(1, 2, 3).to(at::kBFloat16)));
  });
}

TEST(CheckpointIo, AFailingRankIsAnErrorOnAllAndKeepsTheOld) {
  const TemporaryFolder folder;
  save_on(2, folder / "ck");
  // A folder in place of rank 1's file makes its write fail as a full disk would. Rank 0 empties ck.tmp first, so
  // rank 1's broadcast() creates the folder, between planning and writing.
  class Obstacle : public ThreadRanks {
   public:
    Obstacle(Ranks& ranks, fs::path path) : ThreadRanks(ranks.rank(), dummy_), ranks_(ranks), path_(std::move(path)) {}
    int size() const override { return ranks_.size(); }
    std::vector<std::string> all_gather(const std::string& bytes) override { return ranks_.all_gather(bytes); }
    std::string broadcast(const std::string& bytes, int root) override {
      std::string result = ranks_.broadcast(bytes, root);
      if (rank() == 1 && !std::exchange(is_placed_, true)) fs::create_directories(path_);
      return result;
    }

   private:
    Shared dummy_{1};
    Ranks& ranks_;
    fs::path path_;
    bool is_placed_ = false;
  };
  const auto errors = run_ranks(2, [&](Ranks& ranks) {
    Obstacle blocked(ranks, folder / "ck.tmp" / "__1_0.distcp");
    save(folder / "ck", sharded_sample(ranks.rank(), 2), blocked);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    EXPECT_NE(error.find("__1_0.distcp"), std::string::npos) << error;
    EXPECT_NE(error.find("Is a directory"), std::string::npos) << error;
  }
  EXPECT_FALSE(fs::exists(folder / "ck.tmp"));
  expect_loads_on(2, folder / "ck");
}

TEST(CheckpointIo, AFullDiskIsNamed) {
  OutputFile file("/dev/full");
  file.append("x", 1);
  EXPECT_THAT(test::message_of<CheckpointError>([&] { file.finish(); }),
              ::testing::HasSubstr("/dev/full: No space left on device"));
}

TEST(CheckpointIo, AKillBetweenTheTwoRenamesIsRepaired) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  // On file systems without an atomic swap, the old folder is moved aside before the new one moves in.
  fs::rename(folder / "ck", folder / "ck.replaced");
  expect_loads_on(1, folder / "ck");
  EXPECT_FALSE(fs::exists(folder / "ck.replaced"));
  // Tests the full replacement by two renames.
  fs::copy(folder / "ck", folder / "ck.tmp");
  put_in_place_by_two_renames(folder / "ck");
  EXPECT_FALSE(fs::exists(folder / "ck.tmp"));
  EXPECT_FALSE(fs::exists(folder / "ck.replaced"));
  expect_loads_on(2, folder / "ck");
}

// A folder in the lower layer of an overlay cannot be renamed: the old checkpoint is removed in place.
TEST(CheckpointIo, AFolderThatCannotBeRenamedIsReplaced) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  fs::rename(folder / "ck", folder / "ck.tmp");
  save_on(1, folder / "old");
  folder.write("old/only_in_the_old", "x");
  fs::rename(folder / "old", folder / "ck");
  put_in_place_by_removal(folder / "ck");
  for (const char* name : {"ck.tmp", "ck.replaced", "ck/only_in_the_old"})
    EXPECT_FALSE(fs::exists(folder / name)) << name;
  expect_loads_on(2, folder / "ck");
}

TEST(CheckpointIo, ARecoveryKnowsHuggingFacesFolders) {
  const TemporaryFolder folder;
  folder.write("ck.replaced/model.safetensors.index.json", "{}");
  recover_replacement(folder / "ck");
  EXPECT_TRUE(fs::exists(folder / "ck/model.safetensors.index.json"));
  // The new checkpoint has this format; the old one has the other format and is not removed yet.
  save_on(1, folder / "ck.replaced");
  recover_replacement(folder / "ck");
  EXPECT_TRUE(fs::exists(folder / "ck/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder / "ck.replaced"));
}

TEST(CheckpointIo, AKillWhileTheOldFolderIsRemovedIsRepaired) {
  const TemporaryFolder folder;
  save_on(1, folder / "ck");
  fs::copy(folder / "ck", folder / "ck.replaced", fs::copy_options::recursive);
  folder.write("ck.replaced/new", "x");
  recover_replacement(folder / "ck");  // the old folder is still complete: it stays
  EXPECT_FALSE(fs::exists(folder / "ck/new"));
  EXPECT_FALSE(fs::exists(folder / "ck.replaced"));
  fs::copy(folder / "ck", folder / "ck.replaced", fs::copy_options::recursive);
  folder.write("ck.replaced/new", "x");
  fs::remove(folder / "ck" / ".metadata");
  recover_replacement(folder / "ck");
  EXPECT_TRUE(fs::exists(folder / "ck/new"));
  EXPECT_FALSE(fs::exists(folder / "ck.replaced"));
  expect_loads_on(2, folder / "ck");
}

}  // namespace
}  // namespace titan::checkpoint
