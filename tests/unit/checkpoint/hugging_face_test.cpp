#include "checkpoint/hugging_face/hugging_face.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/hugging_face/generation_config.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HuggingFaceFormat format() {
  return {{.to_hub =
               [](const std::string& fqn) {
                 return std::vector{HubTensor{"hf." + fqn, fqn == "wq" ? 2 : 0}};
               }},
          [](c10::ScalarType) {
            return SmallFiles{{"config.json", "{}\n"}};
          }};
}

const std::map<std::string, at::Tensor>& weights() {
  static const std::map<std::string, at::Tensor> kModel = {{"norm", at::arange(7, at::kFloat) / 3},
                                                           {"wq", at::arange(8 * 3, at::kFloat).reshape({8, 3}) / 7},
                                                           {"up", at::arange(5 * 2, at::kFloat).reshape({5, 2}) / 11}};
  return kModel;
}

std::vector<Item> items_of(int rank, int size, bool zero) {
  std::vector<Item> items;
  for (const auto& [fqn, whole] : weights()) {
    items.push_back(shard(fqn, whole, rank, size));
    if (zero) std::get<TensorItem>(items.back()).local.zero_();
  }
  return items;
}

// transformers' conversion script: view(heads, pairs, 2, cols), swap the two middle dims.
TEST(HuggingFace, RotaryRowsAreThoseOfTransformers) {
  const auto ours = weights().at("wq");
  const auto theirs = ours.view({2, 2, 2, 3}).transpose(1, 2).reshape({8, 3});
  for (std::int64_t row = 0; row < 8; ++row) EXPECT_TRUE(theirs[rotary_row(row, 8, 2)].equal(ours[row])) << row;
}

TEST(HuggingFace, AnyRanksReadWhatAnyRanksWrote) {
  for (const int writers : {1, 2, 3}) {
    TemporaryFolder folder;
    const auto target = folder / "hf";
    auto errors = run_ranks(writers, [&](Ranks& ranks) {
      // At most 60 bytes per file, so that there are several files.
      save_hugging_face(target, items_of(ranks.rank(), writers, false), format(), c10::ScalarType::Float, ranks, 60);
    });
    for (const auto& error : errors) EXPECT_EQ(error, "");
    EXPECT_TRUE(fs::exists(target / "model-00002-of-00003.safetensors"));
    EXPECT_TRUE(fs::exists(target / "config.json"));
    const MappedSafetensors second(target / "model-00003-of-00003.safetensors");
    ASSERT_EQ(second.entries().size(), 1u);
    EXPECT_EQ(second.entries()[0].name, "hf.wq");
    auto stored = at::zeros({8, 3});
    second.copy_rows(second.entries()[0], {0, 1, 2, 3, 4, 5, 6, 7}, 0, stored);
    EXPECT_TRUE(stored.equal(weights().at("wq").view({2, 2, 2, 3}).transpose(1, 2).reshape({8, 3})));
    for (const int readers : {1, 2, 4}) {
      errors = run_ranks(readers, [&](Ranks& ranks) {
        const auto items = items_of(ranks.rank(), readers, true);
        load_hugging_face(target, items, format(), ranks);
        const auto want = items_of(ranks.rank(), readers, false);
        for (std::size_t i = 0; i < items.size(); ++i) {
          const auto& item = std::get<TensorItem>(items[i]);
          if (!item.local.equal(std::get<TensorItem>(want[i]).local)) throw std::runtime_error(item.fqn + " differs");
        }
      });
      for (const auto& error : errors) EXPECT_EQ(error, "") << writers << " -> " << readers;
    }
  }
}

// A parameter [E, rows, cols] that stacks experts is E tensors there.
HuggingFaceFormat format_of_experts() {
  HuggingFaceFormat format;
  format.naming.to_hub = [](const std::string& /*fqn*/) {
    std::vector<HubTensor> tensors;
    for (std::int64_t i = 0; i < 5; ++i) tensors.push_back({"experts." + std::to_string(i) + ".up_proj", 0, i});
    return tensors;
  };
  format.small_files = [](c10::ScalarType) { return SmallFiles{{"config.json", "{}\n"}}; };
  return format;
}

TEST(HuggingFace, StackedExpertsAreTensorsOfTheirOwn) {
  const at::Tensor experts = at::arange(5 * 3 * 2, at::kFloat).reshape({5, 3, 2}) / 7;
  const HuggingFaceFormat format = format_of_experts();
  for (const int writers : {1, 2, 4}) {
    TemporaryFolder folder;
    auto errors = run_ranks(writers, [&](Ranks& ranks) {
      save_hugging_face(folder / "hf", {shard("experts", experts, ranks.rank(), writers)}, format,
                        c10::ScalarType::Float, ranks);
    });
    for (const auto& error : errors) EXPECT_EQ(error, "");
    const MappedSafetensors file(folder / "hf" / "model.safetensors");
    ASSERT_EQ(file.entries().size(), 5u);
    EXPECT_EQ(file.entries()[3].name, "experts.3.up_proj");
    EXPECT_EQ(file.entries()[3].shape, (std::vector<std::int64_t>{3, 2}));
    auto stored = at::zeros({3, 2});
    file.copy_rows(file.entries()[3], {0, 1, 2}, 0, stored);
    EXPECT_TRUE(stored.equal(experts[3]));
    for (const int readers : {1, 3}) {
      errors = run_ranks(readers, [&](Ranks& ranks) {
        TensorItem item = shard("experts", at::zeros_like(experts), ranks.rank(), readers);
        load_hugging_face(folder / "hf", {item}, format, ranks);
        if (!item.local.equal(shard("experts", experts, ranks.rank(), readers).local))
          throw std::runtime_error("experts differ");
      });
      for (const auto& error : errors) EXPECT_EQ(error, "") << writers << " -> " << readers;
    }
  }
}

TEST(HuggingFace, ExportsInOtherDtypes) {
  TemporaryFolder folder;
  const auto target = folder / "hf";
  const auto errors = run_ranks(2, [&](Ranks& ranks) {
    save_hugging_face(target, items_of(ranks.rank(), 2, false), format(), c10::ScalarType::BFloat16, ranks);
    const auto items = items_of(ranks.rank(), 2, true);
    load_hugging_face(target, items, format(), ranks);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto want = std::get<TensorItem>(items_of(ranks.rank(), 2, false)[i]).local;
      if (!std::get<TensorItem>(items[i]).local.equal(want.to(at::kBFloat16).to(at::kFloat)))
        throw std::runtime_error("not the rounded weights");
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(HuggingFace, ListsAllThatDoesNotFit) {
  TemporaryFolder folder;
  ThreadRanks::Shared shared(1);
  ThreadRanks ranks(0, shared);
  EXPECT_THAT(test::message_of<CheckpointError>(
                  [&] { load_hugging_face(folder / "no", items_of(0, 1, true), format(), ranks); }),
              HasSubstr("no has no *.safetensors file"));
  save_hugging_face(folder / "hf", items_of(0, 1, false), format(), c10::ScalarType::Float, ranks);
  std::vector<Item> other = {shard("norm", at::zeros({9}), 0, 1), shard("extra", at::zeros({2}), 0, 1),
                             shard("more", at::zeros({2}), 0, 1)};
  const auto error =
      test::message_of<CheckpointError>([&] { load_hugging_face(folder / "hf", other, format(), ranks); });
  EXPECT_THAT(error, HasSubstr("Missing: hf.extra (extra), hf.more (more)"));
  EXPECT_THAT(error, HasSubstr("hf.norm is [7], the model's norm [9]"));
}

class SafetensorsFile : public ::testing::Test {
 protected:
  // Returns the error of a file with this header and `data_bytes` bytes of data.
  std::string error(const std::string& header, std::size_t data_bytes, std::optional<std::uint64_t> length = {}) {
    const std::uint64_t size = length.value_or(header.size());
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << header << std::string(data_bytes, '\1');
    file.close();
    return test::message_of<CheckpointError>([&] { read_safetensors_header(path_); });
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_ / "x.safetensors";
};

TEST_F(SafetensorsFile, WhatIsWrongIsSaid) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  EXPECT_EQ(error(good, 24), "no error");
  EXPECT_EQ(error("{}", 0), "no error");
  EXPECT_THAT(error(good, 23), HasSubstr("a lies outside the file"));
  EXPECT_THAT(error(good, 25), HasSubstr("bytes after the last tensor"));
  EXPECT_THAT(error(good, 24, 1ull << 60), HasSubstr("its header would have"));
  EXPECT_THAT(error(good, 24, good.size() - 1), HasSubstr("its header cannot be read"));
  EXPECT_THAT(error("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("another size"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype F31"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("shape"));
  EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), HasSubstr("outside"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("more elements than can be counted"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
                    R"("data_offsets":[1,3]}})",
                    3),
              HasSubstr("overlaps"));
  EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2]}})", 2), HasSubstr("cannot be read"));
}

// A header that is cut or flipped anywhere is read or refused, and nothing else happens.
TEST_F(SafetensorsFile, NoCrashOnDamagedHeaders) {
  std::vector<SafetensorsEntry> entries = {{"a", c10::ScalarType::Float, {2, 3}, 0},
                                           {"b", c10::ScalarType::Half, {5}, 0}};
  const std::string good = make_safetensors_header(entries) + std::string(34, '\1');
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    if (i % 2 == 0) bytes.resize(random() % bytes.size());
    if (!bytes.empty()) bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    std::ofstream(path_, std::ios::binary) << bytes;
    refused += test::message_of<CheckpointError>([&] { read_safetensors_header(path_); }) != "no error";
  }
  EXPECT_GT(refused, 1000);
}

nlohmann::json made(const HuggingFaceTokenizer& tokenizer) {
  return nlohmann::json::parse(make_generation_config(tokenizer));
}

TEST(GenerationConfig, HasOneStopTokenOrAList) {
  EXPECT_EQ(made({}), nlohmann::json::parse(R"({"bos_token_id": null, "eos_token_id": null})"));
  EXPECT_EQ(made({.bos_id = 1, .stop_ids = {2}}), nlohmann::json::parse(R"({"bos_token_id": 1, "eos_token_id": 2})"));
  EXPECT_EQ(made({.stop_ids = {2, 7}}), nlohmann::json::parse(R"({"bos_token_id": null, "eos_token_id": [2, 7]})"));
}

TEST(GenerationConfig, KeepsWhatTheTokenizerDoesNotSay) {
  const std::string defaults =
      R"({"_from_model_config": true, "bos_token_id": 5, "eos_token_id": [6, 7], "temperature": 0.6})";
  EXPECT_EQ(made({.generation_defaults = defaults}),
            nlohmann::json::parse(R"({"bos_token_id": 5, "eos_token_id": [6, 7], "temperature": 0.6})"));
  EXPECT_EQ(made({.bos_id = 1, .stop_ids = {2, 6, 7}, .generation_defaults = defaults}),
            nlohmann::json::parse(R"({"bos_token_id": 1, "eos_token_id": [2, 6, 7], "temperature": 0.6})"));
  EXPECT_THAT(test::message_of<CheckpointError>([] { made({.generation_defaults = "[]"}); }),
              HasSubstr("not a JSON object"));
}

TEST(GenerationConfig, OfAnotherTokenizerHasNoIds) {
  EXPECT_EQ(without_token_ids(""), "");
  EXPECT_EQ(
      nlohmann::json::parse(without_token_ids(
          R"({"pad_token_id": 1, "eos_token_id": [2], "bad_words_ids": [[3]], "top_p": 0.5, "max_new_tokens": 9})")),
      nlohmann::json::parse(R"({"top_p": 0.5, "max_new_tokens": 9})"));
}

TEST(GenerationConfig, OfAFolderIsKept) {
  const test::TemporaryFolder temporary;
  const auto write = [&](const char* name, const char* text) { std::ofstream(temporary.path() / name) << text; };
  const auto stops = [&] { return kept_defaults(temporary.path(), "nothing").stop_ids; };
  EXPECT_THAT(stops(), IsEmpty());
  write("config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_THAT(read_stop_tokens(temporary.path()), ElementsAre(3, 4));
  EXPECT_THAT(stops(), ElementsAre(3, 4));
  EXPECT_EQ(kept_defaults(temporary.path(), "nothing").json, "");
  write("generation_config.json", R"({"eos_token_id": 9, "top_p": 0.5})");
  EXPECT_THAT(stops(), ElementsAre(9));
  EXPECT_EQ(nlohmann::json::parse(kept_defaults(temporary.path(), "nothing").json)["top_p"], 0.5);
  // A file that cannot be used, and a folder that is gone, do not keep weights from being exported.
  write("generation_config.json", "{");
  EXPECT_THAT(stops(), IsEmpty());
  EXPECT_EQ(kept_defaults(temporary.path() / "gone", "nothing").json, "");
  EXPECT_EQ(kept_defaults("", "nothing").json, "");
}

}  // namespace
}  // namespace titan::checkpoint
