// Tests conversion between DCP, safetensors and torch.save: the same bits come back, using little memory.
#include "checkpoint/tools/convert.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/tools/inspect.h"
#include "checkpoint/tools/verify.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/checkpoint/counted_memory.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<std::pair<std::string, at::Tensor>> model() {
  auto tensors = sample_tensors();
  tensors.emplace_back("wq", at::rand({48, 10}));  // 4 heads of 12 rows
  tensors.emplace_back("scalar", at::scalar_tensor(4.5, at::kFloat));
  tensors.emplace_back("empty", at::empty({0, 4}, at::kFloat));
  return tensors;
}

// Saves from two ranks: tensors split along dim 0, one along dim 1, and state outside the model.
void save_model(const fs::path& folder) {
  const auto errors = run_ranks(2, [&](Ranks& ranks) {
    at::manual_seed(3);
    std::vector<Item> items;
    for (const auto& [name, tensor] : model()) {
      if (tensor.dim() == 0) {
        items.push_back(replicate(name, tensor));
      } else if (name == "uneven") {  // [5, 7]
        const std::int64_t first = ranks.rank() == 0 ? 0 : 4, count = ranks.rank() == 0 ? 4 : 3;
        items.push_back(
            TensorItem{name, {name}, tensor.narrow(1, first, count).clone(), {{5, 7}, {0, first}, {5, count}}, true});
      } else {
        items.push_back(shard(name, tensor, ranks.rank(), 2));
      }
    }
    items.push_back(replicate("optimizer.state.wq.step", at::scalar_tensor(1)));
    items.push_back(value("train_state.step", 7));
    save(folder, items, ranks);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
}

std::vector<Conversion> plan(const TensorSource& source, RowOrder order, std::optional<c10::ScalarType> dtype = {}) {
  std::vector<Conversion> conversions;
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    TensorInfo target = source.tensors()[i];
    if (!is_model_key(target.name) || target.dtype == c10::ScalarType::Bool) continue;  // safetensors here has no bool
    const bool is_permuted = target.name == "wq" && order != RowOrder::kSame;
    if (dtype && c10::isFloatingType(target.dtype)) target.dtype = *dtype;
    conversions.push_back({i, target, is_permuted ? order : RowOrder::kSame, is_permuted ? 4 : 0});
  }
  return conversions;
}

std::vector<TensorInfo> targets(const std::vector<Conversion>& conversions) {
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : conversions) tensors.push_back(each.target);
  return tensors;
}

std::map<std::string, at::Tensor> read_all(const fs::path& path) {
  const auto source = open_source(path, detect_kind(path));
  std::map<std::string, at::Tensor> tensors;
  for (std::size_t i = 0; i < source->tensors().size(); ++i) {
    const TensorInfo& info = source->tensors()[i];
    tensors[info.name] = source->read(i, 0, info.rows()).reshape(info.shape);
  }
  source->verify();
  return tensors;
}

void expect_same(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& wanted) {
  ASSERT_FALSE(found.empty());
  for (const auto& [name, tensor] : found) {
    ASSERT_TRUE(wanted.contains(name)) << name;
    EXPECT_EQ(tensor.scalar_type(), wanted.at(name).scalar_type()) << name;
    EXPECT_TRUE(tensor.equal(wanted.at(name))) << name;
  }
}

// Experts [E, rows, cols] become E tensors, and these one again.
TEST(ConvertStacks, TakesThemApartAndPutsThemTogether) {
  const TemporaryFolder folder;
  const at::Tensor experts = at::rand({3, 4, 5});
  const auto errors = run_ranks(1, [&](Ranks& ranks) { save(folder / "dcp", {replicate("experts", experts)}, ranks); });
  EXPECT_EQ(errors[0], "");
  std::vector<Conversion> apart;
  for (std::int64_t i = 0; i < 3; ++i)
    apart.push_back({0, {"experts." + std::to_string(i), c10::ScalarType::Float, {4, 5}}, RowOrder::kSame, 0, i});
  const auto stacked = open_source(folder / "dcp", CheckpointKind::kDcp);
  convert(*stacked, *make_safetensors_sink(folder / "hf", targets(apart), {}), apart);
  for (const auto& [name, tensor] : read_all(folder / "hf")) EXPECT_TRUE(tensor.equal(experts[name.back() - '0']));

  const auto parts = open_source(folder / "hf", CheckpointKind::kHuggingFace);
  const auto index_of = [&](const std::string& name) {
    const auto found = std::ranges::find(parts->tensors(), name, &TensorInfo::name);
    return static_cast<std::size_t>(found - parts->tensors().begin());
  };
  const std::vector<Conversion> together = {{index_of("experts.0"),
                                             {"experts", c10::ScalarType::Float, {3, 4, 5}},
                                             RowOrder::kSame,
                                             0,
                                             {},
                                             {{index_of("experts.1"), index_of("experts.2")}}}};
  convert(*parts, *make_dcp_sink(folder / "back", targets(together)), together, /*block_bytes=*/40);
  EXPECT_TRUE(read_all(folder / "back").at("experts").equal(experts));
}

TEST(ReorderRows, IsTheRotaryPermutationAndItsInverse) {
  const at::Tensor ours = at::arange(24 * 3).reshape({24, 3});
  const at::Tensor theirs = reorder_rows(ours, 8, RowOrder::kToHuggingFace);
  for (std::int64_t row = 0; row < 24; ++row) EXPECT_TRUE(theirs[rotary_row(row, 24, 3)].equal(ours[row])) << row;
  EXPECT_TRUE(reorder_rows(theirs, 8, RowOrder::kFromHuggingFace).equal(ours));
}

class Convert : public ::testing::Test {
 protected:
  void SetUp() override { save_model(folder_ / "dcp"); }

  // Uses blocks of 100 bytes, so that every tensor takes many.
  void run(const fs::path& from, const fs::path& to, RowOrder order, std::optional<c10::ScalarType> dtype = {}) {
    const auto source = open_source(from, detect_kind(from));
    const auto conversions = plan(*source, order, dtype);
    const auto sink = to.extension() == ".pt" ? make_torch_sink(to, targets(conversions))
                      : to.filename().string()[0] == 'h'
                          ? make_safetensors_sink(to, targets(conversions), {{"config.json", "{}\n"}}, 5000)
                          : make_dcp_sink(to, targets(conversions));
    convert(*source, *sink, conversions, 100);
  }

  TemporaryFolder folder_;
};

TEST_F(Convert, RoundTripsAreBitEqual) {
  const auto original = read_all(folder_ / "dcp");
  run(folder_ / "dcp", folder_ / "hf", RowOrder::kToHuggingFace);
  const auto theirs = read_all(folder_ / "hf");
  EXPECT_FALSE(theirs.at("wq").equal(original.at("wq")));
  EXPECT_TRUE(reorder_rows(original.at("wq"), 12, RowOrder::kToHuggingFace).equal(theirs.at("wq")));
  run(folder_ / "hf", folder_ / "back", RowOrder::kFromHuggingFace);
  run(folder_ / "back", folder_ / "model.pt", RowOrder::kSame);
  run(folder_ / "model.pt", folder_ / "again", RowOrder::kSame);
  for (const char* name : {"back", "model.pt", "again"}) {
    const auto found = read_all(folder_ / name);
    EXPECT_EQ(found.size(), original.size() - 2) << name;  // without the optimizer's step and the bool
    expect_same(found, original);
    EXPECT_TRUE(verify_checkpoint(folder_ / name).empty()) << name;
  }
  EXPECT_TRUE(verify_checkpoint(folder_ / "hf").empty());
}

// Any number of ranks can load the results.
TEST_F(Convert, OurLoadersReadTheResults) {
  run(folder_ / "dcp", folder_ / "hf", RowOrder::kToHuggingFace);
  run(folder_ / "dcp", folder_ / "back", RowOrder::kSame);
  const at::Tensor wanted = read_all(folder_ / "dcp").at("wq");
  const HuggingFaceFormat format{{.to_hub = [](const std::string& fqn) { return std::vector{HubTensor{fqn, 4}}; }}, {}};
  const auto errors = run_ranks(3, [&](Ranks& ranks) {
    for (const bool hub : {false, true}) {
      TensorItem item = shard("wq", at::zeros({48, 10}), ranks.rank(), 3);
      if (hub) load_hugging_face(folder_ / "hf", {item}, format, ranks);
      if (!hub) load(folder_ / "back", {item}, ranks);
      if (!item.local.equal(shard("wq", wanted, ranks.rank(), 3).local)) throw CheckpointError("wq differs");
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(Convert, CastsFloatingPointAlone) {
  auto wanted = read_all(folder_ / "dcp");
  for (auto& [name, tensor] : wanted)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kBFloat16);
  run(folder_ / "dcp", folder_ / "hf", RowOrder::kSame, c10::ScalarType::BFloat16);
  expect_same(read_all(folder_ / "hf"), wanted);
}

TEST_F(Convert, ADamagedSourceGivesNoTarget) {
  run(folder_ / "dcp", folder_ / "hf", RowOrder::kSame);
  run(folder_ / "dcp", folder_ / "model.pt", RowOrder::kSame);
  const auto flip_at = [](const fs::path& file, double part) {
    std::string bytes = read_file(file);
    bytes[static_cast<std::size_t>(part * static_cast<double>(bytes.size()))] ^= 16;
    std::ofstream(file, std::ios::binary) << bytes;
  };
  flip_at(folder_ / "dcp" / "__1_0.distcp", 0.7);  // in "large"
  const auto files = inspect_checkpoint(folder_ / "hf").files;
  const auto largest = std::max_element(files.begin(), files.end(),
                                        [](const FileInfo& a, const FileInfo& b) { return a.size < b.size; });
  flip_at(folder_ / "hf" / largest->name, 0.5);
  flip_at(folder_ / "model.pt", 0.7);
  for (const char* name : {"dcp", "hf", "model.pt"}) {
    EXPECT_THROW(run(folder_ / name, folder_ / "target", RowOrder::kSame), DamagedCheckpoint) << name;
    EXPECT_FALSE(fs::exists(folder_ / "target"));
    EXPECT_FALSE(fs::exists(folder_ / "target.tmp"));
    EXPECT_FALSE(verify_checkpoint(folder_ / name).empty()) << name;
  }
}

TEST_F(Convert, RefusesHeadsThatDoNotFit) {
  const auto source = open_dcp_source(folder_ / "dcp");
  auto conversions = plan(*source, RowOrder::kToHuggingFace);
  for (Conversion& each : conversions)
    if (each.order != RowOrder::kSame) each.heads = 5;
  EXPECT_THROW(check_conversions(*source, conversions), CheckpointError);
}

TEST(DetectKind, SaysWhatIsThere) {
  const TemporaryFolder folder;
  const auto error = [&](const fs::path& path) {
    try {
      detect_kind(path);
    } catch (const CheckpointError& found) {
      return std::string(found.what());
    }
    return std::string();
  };
  EXPECT_THAT(error(folder / "no"), HasSubstr("does not exist"));
  EXPECT_THAT(error(folder.path()), HasSubstr("neither .metadata"));
  std::ofstream(folder / "text") << "hello";
  EXPECT_THAT(error(folder / "text"), HasSubstr("neither a *.safetensors file"));
}

// Converts 105 MB. At most two blocks of 8 MiB exist at a time: as read and reordered, or reordered and cast. The
// output file always has two mapped blocks.
TEST(ConvertMemory, IsTwoBlocks) {
  constexpr std::int64_t kBlock = 8 << 20;
  const TemporaryFolder folder;
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 4; ++i) tensors.push_back({"w" + std::to_string(i), c10::ScalarType::Float, {3200, 2048}});
  {
    const at::Tensor block = at::rand({128, 2048});
    const auto sink = make_dcp_sink(folder / "dcp", tensors);
    for (const TensorInfo& tensor : tensors) {
      sink->begin(tensor);
      for (int i = 0; i < 25; ++i) sink->append(block);
      sink->end();
    }
    ASSERT_GT(sink->finish(), 100'000'000u);
  }
  for (const auto& [from, to, order] :
       {std::tuple{"dcp", "hf", RowOrder::kToHuggingFace}, std::tuple{"hf", "back", RowOrder::kFromHuggingFace}}) {
    const auto source = open_source(folder / from, detect_kind(folder / from));
    std::vector<Conversion> conversions;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TensorInfo target = tensors[i];
      target.dtype = c10::ScalarType::BFloat16;
      conversions.push_back({i, target, order, 100});
    }
    const auto sink = std::string(to) == "hf"
                          ? make_safetensors_sink(folder / to, targets(conversions), {{"config.json", "{}"}})
                          : make_dcp_sink(folder / to, targets(conversions));
    const test::CountedMemory memory;
    convert(*source, *sink, conversions, kBlock);
    EXPECT_GE(memory.peak_bytes(), 2 * kBlock) << to;
    EXPECT_LT(memory.peak_bytes(), 2 * kBlock + (1 << 20)) << to;
  }
}

}  // namespace
}  // namespace titan::checkpoint
