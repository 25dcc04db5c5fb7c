// Tests one file with all weights: what one number of ranks saves any other loads to the bit, in little memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/stream/tensor_sink.h"
#include "checkpoint/stream/tensor_source.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/whole/load_weights.h"
#include "checkpoint/whole/save_weights.h"
#include "tests/unit/checkpoint/counted_memory.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kSmallBlock = 100;  // bytes: several blocks per tensor, and rows that are larger

// Splits [5, 7] along dim 1, as tensor parallelism does.
TensorItem split_columns(const std::string& fqn, const at::Tensor& full, int rank, int size) {
  const std::int64_t chunk = (full.size(1) + size - 1) / size, begin = std::min(chunk * rank, full.size(1));
  const std::int64_t count = std::min(chunk, full.size(1) - begin);
  return {
      fqn, {fqn}, full.narrow(1, begin, count).clone(), {full.sizes().vec(), {0, begin}, {full.size(0), count}}, true};
}

std::vector<Item> items_of(int rank, int size) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : sample_tensors())
    items.push_back(name == "uneven" ? split_columns(name, tensor, rank, size) : shard(name, tensor, rank, size));
  items.push_back(replicate("scalar", at::scalar_tensor(4.5, at::kFloat)));
  items.push_back(replicate("empty", at::empty({0, 4}, at::kFloat)));
  return items;
}

void expect_all_well(const std::vector<std::string>& errors) { EXPECT_THAT(errors, Each("")); }

class WholeWeights : public ::testing::TestWithParam<int> {
 protected:
  TemporaryFolder folder_;
  fs::path step_ = folder_ / "step-3";
  fs::path file_ = step_ / layout::kModelFile;

  void save_from(int size, c10::ScalarType dtype) {
    expect_all_well(run_ranks(size, [&](Ranks& ranks) {
      save_weights(step_, items_of(ranks.rank(), size), dtype, ranks, {.texts = {{"note.txt", "hello"}}}, kSmallBlock);
    }));
  }
};

TEST_P(WholeWeights, AnyNumberOfRanksLoadsWhatAnotherSaved) {
  save_from(GetParam(), at::kDouble);  // holds every value of the sample
  EXPECT_TRUE(verify_checkpoint(step_).empty());
  EXPECT_EQ(read_file(step_ / "note.txt"), "hello");
  for (const int size : {1, 2, 3, 4}) {
    expect_all_well(run_ranks(size, [&](Ranks& ranks) {
      const std::vector<Item> wanted = items_of(ranks.rank(), size);
      std::vector<Item> items = items_of(ranks.rank(), size);
      for (Item& item : items) std::get<TensorItem>(item).local.fill_(1);
      load_weights(file_, items, ranks, kSmallBlock);
      for (std::size_t i = 0; i < items.size(); ++i)
        EXPECT_TRUE(std::get<TensorItem>(items[i]).local.equal(std::get<TensorItem>(wanted[i]).local))
            << item_fqn(items[i]) << " at " << size << " ranks";
    }));
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, WholeWeights, ::testing::Values(1, 2, 4));

using WholeWeightsOnce = WholeWeights;
INSTANTIATE_TEST_SUITE_P(TwoRanks, WholeWeightsOnce, ::testing::Values(2));

TEST_P(WholeWeightsOnce, FloatsAreCastAndIntegersAreNot) {
  save_from(2, at::kBFloat16);
  const auto source = open_torch_source(file_);
  for (const TensorInfo& tensor : source->tensors()) {
    const bool is_integer = tensor.name == "int64" || tensor.name == "bool";
    EXPECT_EQ(tensor.dtype == c10::ScalarType::BFloat16, !is_integer) << tensor.name;
  }
}

TEST_P(WholeWeightsOnce, TiedNamesShareAStorage) {
  const at::Tensor weight = at::rand({40, 50});
  const auto items = [&](int rank) {
    TensorItem second = shard("output", weight, rank, 2);
    second.tied_to = "embedding";
    return std::vector<Item>{shard("embedding", weight, rank, 2), second};
  };
  expect_all_well(run_ranks(2, [&](Ranks& ranks) { save_weights(step_, items(ranks.rank()), at::kFloat, ranks); }));
  EXPECT_LT(fs::file_size(file_), 2 * weight.nbytes());
  const auto load_names = [&](const std::vector<std::pair<std::string, at::Tensor>>& stored) {
    std::vector<TensorInfo> tensors;
    for (const auto& [name, tensor] : stored) tensors.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    const auto sink = make_torch_sink(folder_ / "names.pt", tensors);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      sink->begin(tensors[i]);
      sink->append(stored[i].second);
      sink->end();
    }
    sink->finish();
    return run_ranks(2, [&](Ranks& ranks) {
      std::vector<Item> empty = items(ranks.rank());
      std::get<TensorItem>(empty[0]).local.zero_();
      load_weights(folder_ / "names.pt", empty, ranks);
      EXPECT_TRUE(std::get<TensorItem>(empty[0]).local.equal(shard("", weight, ranks.rank(), 2).local));
    });
  };
  expect_all_well(load_names({{"embedding", weight}, {"output", weight}}));
  expect_all_well(load_names({{"embedding", weight}}));
  expect_all_well(load_names({{"output", weight}}));
  EXPECT_THAT(load_names({{"embedding", weight}, {"output", weight + 1}}), Each(HasSubstr("have different values")));
}

TEST_P(WholeWeightsOnce, ErrorsNameEveryTensorOnAllRanks) {
  save_from(2, at::kDouble);
  const auto errors = run_ranks(2, [&](Ranks& ranks) {
    std::vector<Item> items = items_of(ranks.rank(), 2);
    std::erase_if(items, [](const Item& item) { return item_fqn(item) == "int64"; });
    std::get<TensorItem>(items[0]).fqn = "eben";
    items[2] = shard("one_row", at::zeros({2, 3}), ranks.rank(), 2);
    const at::Tensor before = std::get<TensorItem>(items[4]).local.clone();
    try {
      load_weights(file_, items, ranks);
    } catch (const CheckpointError&) {
      EXPECT_TRUE(std::get<TensorItem>(items[4]).local.equal(before));
      throw;
    }
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("1 missing, 2 unexpected, 1 of another shape"),
                                 HasSubstr("missing: eben (the file has even)"), HasSubstr("unexpected: int64"),
                                 HasSubstr("one_row: expected shape [2, 3], the file has [1, 3]"))));
}

TEST_P(WholeWeightsOnce, DamageIsFound) {
  save_from(2, at::kDouble);
  std::string bytes = read_file(file_);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file_, std::ios::binary) << bytes;
  EXPECT_FALSE(verify_checkpoint(step_).empty());
  for (const std::int64_t block : {kSmallBlock, std::int64_t{1} << 30}) {
    const auto errors =
        run_ranks(2, [&](Ranks& ranks) { load_weights(file_, items_of(ranks.rank(), 2), ranks, block); });
    EXPECT_THAT(errors, Each(HasSubstr("do not match their checksum"))) << block;
  }
}

// A rank that cannot send its part ends the save on all of them, and the earlier one stays.
TEST_P(WholeWeightsOnce, AFailedRankLeavesTheOldFile) {
  save_from(2, at::kDouble);
  const std::string before = read_file(file_);
  for (const int bad : {0, 1}) {
    const auto errors = run_ranks(2, [&](Ranks& ranks) {
      std::vector<Item> items = items_of(ranks.rank(), 2);
      if (ranks.rank() == bad)
        std::get<TensorItem>(items[4]).local = std::get<TensorItem>(items[4]).local.to(at::kMeta);
      save_weights(step_, items, at::kFloat, ranks, {}, kSmallBlock);
    });
    EXPECT_THAT(errors, Each(HasSubstr("failed: rank " + std::to_string(bad) + ": "))) << bad;
    EXPECT_EQ(read_file(file_), before);
    EXPECT_FALSE(fs::exists(folder_ / "step-3.tmp"));
  }
}

// A transposed tensor, and one in the middle of a storage, as other programs save them; also in a wrapping dict.
TEST_P(WholeWeightsOnce, StridedTensorsAreReadOnce) {
  const at::Tensor storage = at::arange(100, at::kFloat);
  TensorDescription turned = describe_contiguous(at::kFloat, {100}, "0"), middle = turned;
  turned.sizes = {5, 4}, turned.strides = {1, 5}, turned.storage_offset = 10;
  middle.sizes = {3, 5}, middle.strides = {10, 2}, middle.storage_offset = 50;
  fs::create_directories(step_);
  {
    OutputFile out(file_);
    TorchArchiveWriter archive(out, pickle_state_dict({{"turned", turned}, {"middle", middle}}));
    archive.begin_storage("0", storage.nbytes());
    archive.append(storage.const_data_ptr(), storage.nbytes());
    archive.end_storage();
    archive.finish();
    out.finish();
  }
  expect_all_well(run_ranks(2, [&](Ranks& ranks) {
    const std::vector<Item> items = {shard("turned", at::zeros({5, 4}), ranks.rank(), 2),
                                     split_columns("middle", at::zeros({3, 5}), ranks.rank(), 2)};
    load_weights(file_, items, ranks, kSmallBlock);
    const auto wanted = shard("", storage.as_strided({5, 4}, {1, 5}, 10), ranks.rank(), 2);
    EXPECT_TRUE(std::get<TensorItem>(items[0]).local.equal(wanted.local));
    const auto columns = split_columns("", storage.as_strided({3, 5}, {10, 2}, 50), ranks.rank(), 2);
    EXPECT_TRUE(std::get<TensorItem>(items[1]).local.equal(columns.local));
  }));
}

// 64 MiB in one tensor, four ranks in this process. Each rank has at most the block as read, as a message, in the
// exchange (here: the slots of all ranks, twice) and as received: 4 * 4 blocks of 1 MiB, and the file's two.
TEST_P(WholeWeightsOnce, MemoryIsAFewBlocks) {
  constexpr std::int64_t kBlock = 1 << 20, kRows = 16 << 10, kMost = 18 * kBlock + (1 << 20);
  const auto box = [&](int rank) {
    return TensorItem{"w",
                      {"w"},
                      at::full({kRows / 4, 1024}, rank, at::kFloat),
                      {{kRows, 1024}, {rank * kRows / 4, 0}, {kRows / 4, 1024}},
                      true};
  };
  std::vector<std::vector<Item>> items;
  for (int rank = 0; rank < 4; ++rank) items.push_back({box(rank)});
  const auto of = [&](Ranks& ranks) -> const std::vector<Item>& {
    return items[static_cast<std::size_t>(ranks.rank())];
  };
  {
    const test::CountedMemory memory;
    expect_all_well(run_ranks(4, [&](Ranks& ranks) { save_weights(step_, of(ranks), at::kFloat, ranks, {}, kBlock); }));
    EXPECT_LT(memory.peak_bytes(), kMost);
  }
  for (int rank = 0; rank < 4; ++rank) std::get<TensorItem>(items[static_cast<std::size_t>(rank)][0]).local.zero_();
  const test::CountedMemory memory;
  expect_all_well(run_ranks(4, [&](Ranks& ranks) { load_weights(file_, of(ranks), ranks, kBlock); }));
  EXPECT_LT(memory.peak_bytes(), kMost);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(std::get<TensorItem>(items[static_cast<std::size_t>(rank)][0]).local.equal(box(rank).local));
}

}  // namespace
}  // namespace titan::checkpoint
