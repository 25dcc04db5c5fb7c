#include "data/order/torchtitan_order.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <random>
#include <sstream>

#include "data/sources/jsonl_source.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Sample = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;  // input, label

std::unique_ptr<TorchTitanOrder> make_order(const std::filesystem::path& path, const TorchTitanOrder::Options& options,
                                            ByteTokenizer tokenizer = ByteTokenizer()) {
  return std::make_unique<TorchTitanOrder>(open_text_files(path), std::make_shared<ByteTokenizer>(tokenizer), options);
}

std::vector<Sample> rows(TorchTitanOrder& order, std::int64_t seq_len, int limit) {
  std::vector<Sample> result;
  for (int i = 0; i < limit; ++i) {
    const auto size = static_cast<std::size_t>(seq_len);
    Sample row{std::vector<std::int64_t>(size), std::vector<std::int64_t>(size)};
    if (!order.next_row({row.first, row.second, {}, {}})) break;
    result.push_back(std::move(row));
  }
  return result;
}

// The rule written down directly: concatenate everything, cut windows of seq_len + 1.
std::vector<Sample> reference(const std::vector<std::string>& texts, std::size_t seq_len, std::size_t limit, bool bos,
                              bool eos) {
  std::vector<std::int64_t> stream;
  while (stream.size() < limit * (seq_len + 1)) {
    for (const std::string& text : texts) {
      if (bos) stream.push_back(256);
      for (const char byte : text) stream.push_back(static_cast<unsigned char>(byte));
      if (eos) stream.push_back(257);
    }
  }
  std::vector<Sample> result;
  for (std::size_t i = 0; i < limit; ++i) {
    const auto window = stream.begin() + static_cast<std::ptrdiff_t>(i * (seq_len + 1));
    const auto length = static_cast<std::ptrdiff_t>(seq_len);
    result.push_back({{window, window + length}, {window + 1, window + 1 + length}});
  }
  return result;
}

std::vector<std::string> write_documents(const TempFolder& folder, std::vector<std::size_t> sizes) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::string text;
    for (std::size_t j = 0; j < sizes[i]; ++j) text += static_cast<char>('!' + (i * 31 + j) % 90);
    folder.write(std::string(1, static_cast<char>('a' + i)), text);
    texts.push_back(text);
  }
  return texts;
}

TEST(TorchTitanOrder, MatchesThePlainRuleOverManyLoops) {
  const TempFolder folder;
  // Shorter and longer than a window, empty, and longer than several.
  const auto texts = write_documents(folder, {5, 40, 0, 1, 17, 8, 3});
  for (const std::int64_t seq_len : {1, 7, 16, 200}) {
    for (const auto& [bos, eos] : {std::pair{true, true}, {false, true}, {true, false}, {false, false}}) {
      auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = seq_len}, ByteTokenizer(bos, eos));
      EXPECT_EQ(rows(*order, seq_len, 50), reference(texts, static_cast<std::size_t>(seq_len), 50, bos, eos));
    }
  }
}

TEST(TorchTitanOrder, EveryRankPacksItsOwnBlock) {
  const TempFolder folder;
  const auto texts = write_documents(folder, {5, 40, 2, 11, 17, 8, 3});
  const std::pair<std::size_t, std::size_t> blocks[] = {{0, 3}, {3, 5}, {5, 7}};  // 7 documents on 3 ranks
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = 6, .rank = {rank, 3}});
    const auto [begin, end] = blocks[rank];
    EXPECT_EQ(rows(*order, 6, 30), reference({texts.begin() + static_cast<std::ptrdiff_t>(begin),
                                              texts.begin() + static_cast<std::ptrdiff_t>(end)},
                                             6, 30, true, true));
  }
}

TEST(TorchTitanOrder, AFiniteSourceEndsWithItsLastWholeWindow) {
  const TempFolder folder;
  const auto texts = write_documents(folder, {5, 40, 2});
  auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = 9, .infinite = false});
  // 47 bytes and 3 pairs of BOS and EOS are 53 tokens: 5 windows of 10.
  EXPECT_EQ(rows(*order, 9, 100), reference(texts, 9, 5, true, true));
  EXPECT_TRUE(rows(*order, 9, 1).empty());
  order->seek(0, {});  // drops the tokens of the incomplete window
  EXPECT_EQ(rows(*order, 9, 100), reference(texts, 9, 5, true, true));
}

TEST(TorchTitanOrder, SnapshotCountsDocumentsAndKeepsTheTail) {
  const TempFolder folder;
  write_documents(folder, {1, 5, 2});  // streams of 3, 7 and 4 tokens
  auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = 3});
  EXPECT_EQ(order->snapshot().sample_idx, 0);
  EXPECT_TRUE(order->snapshot().token_buffer().empty());
  rows(*order, 3, 1);  // 4 tokens: the first document and one token of the second
  EXPECT_EQ(order->snapshot().sample_idx, 2);
  EXPECT_EQ(order->snapshot().token_buffer().size(), 6u);
  EXPECT_EQ(order->snapshot().token_buffer().back(), 257);
  rows(*order, 3, 2);  // 12 tokens of 14
  EXPECT_EQ(order->snapshot().sample_idx, 3);
  EXPECT_EQ(order->snapshot().token_buffer().size(), 2u);
  rows(*order, 3, 1);  // into the second loop: 16 tokens, two of which are the first document's first two
  EXPECT_EQ(order->snapshot().sample_idx, 1);
  EXPECT_EQ(order->snapshot().token_buffer().size(), 1u);
}

TEST(TorchTitanOrder, SeekContinuesExactlyThere) {
  const TempFolder folder;
  write_documents(folder, {5, 40, 0, 1, 17, 8, 3});
  const TorchTitanOrder::Options options{.dataset_name = "text", .seq_len = 6, .rank = {0, 2}};
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    auto first = make_order(folder.path(), options);
    rows(*first, 6, std::uniform_int_distribution<int>(0, 40)(random));
    const TorchTitanOrder::Snapshot at = first->snapshot();
    auto second = make_order(folder.path(), options);
    rows(*second, 6, trial % 5);  // an order that was at another position
    second->seek(at.sample_idx, at.token_buffer());
    for (int step = 0; step < 10; ++step) {
      ASSERT_EQ(rows(*first, 6, 1), rows(*second, 6, 1));
      ASSERT_EQ(first->snapshot().sample_idx, second->snapshot().sample_idx);
      ASSERT_EQ(first->snapshot().token_buffer(), second->snapshot().token_buffer());
    }
  }
}

TEST(TorchTitanOrder, SeekRefusesAPositionOfOtherData) {
  const TempFolder folder;
  write_documents(folder, {5, 5, 5});
  auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = 6});
  EXPECT_THAT(data_error([&] { order->seek(4, {}); }), AllOf(HasSubstr("after document 4"), HasSubstr("has 3")));
  const std::vector<std::int64_t> tokens = {1, 258};
  EXPECT_THAT(data_error([&] { order->seek(1, tokens); }), AllOf(HasSubstr("token 258"), HasSubstr("tokenizer")));
}

TEST(TorchTitanOrder, MoreRanksThanDocumentsIsAnError) {
  const TempFolder folder;
  write_documents(folder, {5, 5, 5});
  for (std::int64_t rank = 0; rank < 4; ++rank) {  // on every rank, so that none waits for the others
    EXPECT_THAT(data_error([&] {
                  make_order(folder.path(), {.dataset_name = "text", .seq_len = 6, .rank = {rank, 4}});
                }),
                AllOf(HasSubstr("\"text\""), HasSubstr("3 documents"), HasSubstr("4 data-parallel ranks")));
  }
}

TEST(TorchTitanOrder, DocumentsWithoutTokensDoNotLoopForever) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"text\": \"\"}\n{\"text\": \"\"}\n");
  TorchTitanOrder order(open_jsonl_files(folder.path()), std::make_shared<ByteTokenizer>(false, false),
                        {.dataset_name = "jsonl", .seq_len = 2});
  EXPECT_THAT(data_error([&] { rows(order, 2, 1); }), HasSubstr("no tokens"));
  order.seek(1, {});
  EXPECT_THAT(data_error([&] { rows(order, 2, 1); }), HasSubstr("no tokens"));
}

TEST(TorchTitanOrder, SaysThatSmallDataBeginsAnewEachTimeTheCountHasDoubled) {
  const TempFolder folder;
  write_documents(folder, {5});
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  spdlog::set_pattern("%v");
  const auto order = make_order(folder.path(), {.dataset_name = "text", .seq_len = 6});
  rows(*order, 6, 10);  // 70 tokens from one document of 7 tokens (with BOS and EOS): 9 restarts
  spdlog::set_default_logger(before);
  std::string expected;
  for (const int pass : {2, 3, 5, 9})
    expected += "Dataset text is being re-looped (pass " + std::to_string(pass) + " over it)\n";
  EXPECT_EQ(log.str(), expected);
}

}  // namespace
}  // namespace titan::data
