// Files made to harm their reader: a few kilobytes that describe gigabytes or hours of work, and numbers that overflow.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <time.h>

#include "base/error.h"
#include "checkpoint/dcp/planner.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/value_pickle.h"
#include "checkpoint/format/zip_writer.h"
#include "tests/support/message_of.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

using Texts = std::vector<std::string>;

// Pickle opcodes of protocol 2.
std::string bytes_of(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}
std::string joined(const Texts& parts) {
  std::string all;
  for (const auto& part : parts) all += part;
  return all;
}
std::string text(const std::string& content) { return joined({"X", bytes_of(content.size(), 4), content}); }
std::string number(std::int64_t value) { return joined({"\x8a\x08", bytes_of(static_cast<std::uint64_t>(value), 8)}); }
std::string global(const std::string& module, const std::string& name) {
  return joined({"c", module, "\n", name, "\n"});
}
std::string tuple(const Texts& items) { return joined({"(", joined(items), "t"}); }
std::string list(const Texts& items) { return joined({"](", joined(items), "e"}); }
std::string dict(const Texts& keys_and_values) { return joined({"}(", joined(keys_and_values), "u"}); }
std::string object(const std::string& module, const std::string& name, const std::string& state) {
  return joined({global("torch.distributed.checkpoint." + module, name), ")\x81", state, "b"});
}
std::string size(const std::vector<std::int64_t>& dims) {
  Texts items;
  for (const std::int64_t dim : dims) items.push_back(number(dim));
  return joined({global("torch", "Size"), tuple(items), "\x85R"});
}
std::string pickle(const std::string& content) { return joined({"\x80\x02", content, "."}); }

// Pickles `content` once and then refers to it by memo, `count` times in total.
std::string repeated(const std::string& content, char memo, int count) {
  std::string all = content;
  all.append({'q', memo});
  for (int i = 1; i < count; ++i) all.append({'h', memo});
  return all;
}

std::string metadata(const std::string& entries, const std::string& storage, const std::string& planner) {
  return pickle(object(
      "metadata", "Metadata",
      dict({text("state_dict_metadata"), entries, text("planner_data"), planner, text("storage_data"), storage})));
}
std::string chunk(std::int64_t offset, std::int64_t length) {
  return object("metadata", "ChunkStorageMetadata",
                dict({text("offsets"), size({offset}), text("sizes"), size({length})}));
}
std::string tensor(std::int64_t length, const std::string& chunks) {
  return object("metadata", "TensorStorageMetadata",
                dict({text("properties"), object("metadata", "TensorProperties", tuple({global("torch", "float32")})),
                      text("size"), size({length}), text("chunks"), chunks}));
}

std::string metadata_refusal(const std::string& bytes) {
  return test::message_of<CheckpointError>([&] { decode_metadata(bytes, ".metadata"); });
}

TEST(Hostile, SharedChunksDoNotMultiply) {
  // 83 KB that describe 36 million chunks.
  constexpr int kCount = 6000;
  std::string entries = text("a") + tensor(1, list({repeated(chunk(0, 1), '\1', kCount)})) + "q\2";
  for (int i = 1; i < kCount; ++i) entries += joined({text(std::to_string(i)), "h\2"});
  EXPECT_NE(metadata_refusal(metadata(dict({entries}), "}", "}")).find("refers to its own parts too often"),
            std::string::npos);
}

TEST(Hostile, ManyLocationsOfManyChunksEndSoon) {
  // Comparing all pairs would take 400 million comparisons.
  constexpr int kCount = 20000;
  const std::string chunks = list({repeated(chunk(0, 1), '\1', kCount), chunk(1, 1)});
  const std::string index = object("metadata", "MetadataIndex",
                                   dict({text("fqn"), text("a"), text("offset"), size({1}), text("index"), "N"}));
  const std::string info =
      object("filesystem", "_StorageInfo",
             dict({text("relative_path"), text("f"), text("offset"), number(0), text("length"), number(9)}));
  std::string storage = index + "q\3" + info + "q\4";
  for (int i = 1; i < kCount; ++i) storage += "h\3h\4";
  EXPECT_NE(metadata_refusal(metadata(dict({text("a"), tensor(2, chunks)}), dict({storage}), "}"))
                .find("refers to its own parts too often"),
            std::string::npos);
}

TEST(Hostile, SharedTextDoesNotMultiply) {
  const std::string shared = repeated(text(std::string(20000, 'x')), '\1', 20000);  // 60 KB that describe 400 MB
  const std::string planner = dict({text("a"), tuple({shared})});
  EXPECT_NE(metadata_refusal(metadata("}", "}", planner)).find("refers to its own parts too often"), std::string::npos);
  // Few references to a long text: their number alone would be accepted.
  const std::string value = pickle(list({repeated(text(std::string(1 << 20, 'x')), '\1', 900)}));
  EXPECT_NE(test::message_of<CheckpointError>([&] {
              unpickle_value(value, "value");
            }).find("refers to its own parts too often"),
            std::string::npos);
}

TEST(Hostile, GlobalsHaveShortNames) {
  const std::string name = text(std::string(300, 'x')) + "q\1";
  EXPECT_NE(metadata_refusal(pickle(text("torch") + name + "\x93")).find("the name of a global has 305 bytes"),
            std::string::npos);
}

TEST(Hostile, OverlappingChunksThatLeaveAHoleAreRefused) {
  // Four stored elements for four wanted ones, but the last is in no chunk.
  Metadata stored;
  stored.entries["w"] = TensorEntry{at::kFloat, {4}, {{{0}, {3}, {"f", 0, 9}}, {{1}, {1}, {"f", 9, 9}}}};
  const std::vector<Item> wanted = {shard("w", at::zeros({4}), 0, 1)};
  EXPECT_NE(
      test::message_of<CheckpointError>([&] { plan_load(stored, wanted, "ck"); }).find("w: stored chunks overlap"),
      std::string::npos);
  stored.entries["w"] = TensorEntry{at::kFloat, {4}, {{{3}, {1}, {"f", 0, 9}}, {{0}, {3}, {"f", 9, 9}}}};
  EXPECT_EQ(plan_load(stored, wanted, "ck").boxes.size(), 2u);
  // Two columns side by side are accepted; a column and a row that crosses it are not.
  const std::vector<Item> square = {shard("w", at::zeros({2, 2}), 0, 1)};
  stored.entries["w"] = TensorEntry{at::kFloat, {2, 2}, {{{0, 0}, {2, 1}, {"f", 0, 9}}, {{0, 1}, {2, 1}, {"f", 9, 9}}}};
  EXPECT_EQ(plan_load(stored, square, "ck").boxes.size(), 2u);
  stored.entries["w"] = TensorEntry{at::kFloat, {2, 2}, {{{0, 0}, {2, 1}, {"f", 0, 9}}, {{1, 0}, {1, 2}, {"f", 9, 9}}}};
  EXPECT_NE(
      test::message_of<CheckpointError>([&] { plan_load(stored, square, "ck"); }).find("w: stored chunks overlap"),
      std::string::npos);
}

// Returns the error of reading an archive whose tensor has these sizes, strides of zero, and one element.
std::string tensor_refusal(const TemporaryFolder& folder, const std::vector<std::int64_t>& sizes) {
  Texts dims;
  for (const std::int64_t dim : sizes) dims.push_back(number(dim));
  const std::string storage =
      tuple({text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu"), number(1)}) + "Q";
  const std::string hooks = global("collections", "OrderedDict") + ")R";
  OutputFile out(folder / "archive");
  ZipWriter zip(out);
  zip.add("archive/data.pkl",
          pickle(global("torch._utils", "_rebuild_tensor_v2") +
                 tuple({storage, number(0), tuple(dims), tuple(Texts(dims.size(), number(0))), "\x89", hooks}) + "R"));
  zip.add("archive/data/0", "abcd");
  const std::uint64_t length = zip.finish();
  out.finish();
  const InputFile file(folder / "archive");
  const ZipReader archive(file, 0, length, "w");
  return test::message_of<CheckpointError>([&] { StoredTensor{archive}; });
}

TEST(Hostile, SizesThatOverflowAreRefusedWhateverTheStrides) {
  const TemporaryFolder folder;
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(tensor_refusal(folder, {2, 3}), "no error");
  EXPECT_NE(tensor_refusal(folder, {1, large, large}).find("reach beyond its storage"), std::string::npos);
  EXPECT_NE(tensor_refusal(folder, {large, large, 0}).find("reach beyond its storage"), std::string::npos);
}

void write_safetensors(const TemporaryFolder& folder, const std::string& header) {
  OutputFile out(folder / "f.safetensors");
  const std::uint64_t length = header.size();
  out.append(&length, 8);
  out.append(header.data(), header.size());
  out.finish();
}

// Returns the CPU seconds of this thread (waiting excluded) to read a header of `keys` keys `times` times.
double seconds_to_read(std::size_t keys, int times) {
  std::string header = "{";
  for (std::size_t i = 0; i < keys; ++i)
    header += (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const TemporaryFolder folder;
  write_safetensors(folder, header + "}");
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  for (int i = 0; i < times; ++i) EXPECT_EQ(read_safetensors_header(folder / "f.safetensors").size(), keys);
  return now() - start;
}

// One header of 100,000 keys costs as much as a hundred of 1,000, except for the depth of a tree. Comparing each key
// with all before it would cost a hundred times as much.
TEST(Hostile, ASafetensorsHeaderOfManyKeysTakesWorkInProportion) {
  EXPECT_LT(seconds_to_read(100'000, 1), 10 * seconds_to_read(1'000, 100));
}

TEST(Hostile, ASafetensorsHeaderIsNotNestedDeeply) {
  const TemporaryFolder folder;
  write_safetensors(folder, std::string(1 << 20, '['));
  EXPECT_NE(test::message_of<CheckpointError>([&] {
              read_safetensors_header(folder / "f.safetensors");
            }).find("nested too deeply"),
            std::string::npos);
  write_safetensors(folder, R"({"a[[[[[\"[[[":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
  EXPECT_EQ(read_safetensors_header(folder / "f.safetensors").size(), 1u);
  for (const char* shape : {"7", "{\"0\":7}", "[-1]", "[1.5]", "null"}) {
    write_safetensors(folder, std::string(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":)") + shape + "}}");
    EXPECT_NE(test::message_of<CheckpointError>([&] {
                read_safetensors_header(folder / "f.safetensors");
              }).find("an invalid shape"),
              std::string::npos)
        << shape;
  }
}

}  // namespace
}  // namespace titan::checkpoint
