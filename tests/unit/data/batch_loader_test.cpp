#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "data/open.h"
#include "data/order/torchtitan_order.h"
#include "data/sources/jsonl_source.h"
#include "tests/support/guard.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSeqLen = 8;

std::string write_jsonl(const TempFolder& folder, int count) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content +=
        "{\"text\": \"" + std::string(static_cast<std::size_t>(i * 37 % 61), static_cast<char>('a' + i % 26)) + "\"}\n";
  }
  return folder.write("data.jsonl", content).string();
}

DataOptions jsonl_options(const std::string& path, bool infinite = true) {
  return {.dataset = "jsonl", .dataset_path = path, .local_batch_size = 3, .seq_len = kSeqLen, .infinite = infinite};
}

std::unique_ptr<BatchSource> make_source(const DataOptions& options) {
  return make_batch_source(options, std::make_shared<ByteTokenizer>());
}

Values position_of(const BatchSource& source) { return saved_values(source.state()); }

// Counts the encoded documents, which shows how far its reader is.
class CountingTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    bytes_.encode(text, ids);
    ++documents_;
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return bytes_.decode(ids); }
  std::optional<std::int32_t> bos_id() const override { return bytes_.bos_id(); }
  std::optional<std::int32_t> eos_id() const override { return bytes_.eos_id(); }
  std::int64_t vocab_size() const override { return bytes_.vocab_size(); }
  int documents() const { return documents_; }

 private:
  ByteTokenizer bytes_;
  mutable std::atomic<int> documents_{0};
};

// Rows of batch t are windows t*B .. t*B+B-1 of the order.
TEST(BatchLoader, RowsFillBatchesInOrder) {
  const TempFolder folder;
  const auto path = write_jsonl(folder, 20);
  const auto ahead = std::make_shared<CountingTokenizer>(), here = std::make_shared<CountingTokenizer>();
  auto source = make_batch_source(jsonl_options(path), ahead);
  TorchTitanOrder order(open_jsonl_files(path), here, {.dataset_name = "jsonl", .seq_len = kSeqLen});
  std::vector<std::int64_t> input(kSeqLen), label(kSeqLen);
  for (int step = 0; step < 40; ++step) {
    const auto batch = source->next();
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->tokens.sizes(), (std::vector<std::int64_t>{3, kSeqLen}));
    ASSERT_EQ(batch->labels.sizes(), (std::vector<std::int64_t>{3, kSeqLen}));
    ASSERT_EQ(batch->tokens.scalar_type(), at::kLong);
    for (std::int64_t row = 0; row < 3; ++row) {
      ASSERT_TRUE(order.next_row({input, label, {}, {}}));
      const auto* tokens = batch->tokens.const_data_ptr<std::int64_t>() + row * kSeqLen;
      const auto* labels = batch->labels.const_data_ptr<std::int64_t>() + row * kSeqLen;
      ASSERT_EQ(input, std::vector<std::int64_t>(tokens, tokens + kSeqLen));
      ASSERT_EQ(label, std::vector<std::int64_t>(labels, labels + kSeqLen));
    }
    test::wait_until([&] { return ahead->documents() > here->documents(); }, "the loader's thread to be ahead");
    // The saved position is not ahead.
    const TorchTitanState state = parse_torchtitan_state(position_of(*source), 0);
    EXPECT_EQ(state.num_batches, step + 1);
    EXPECT_EQ(state.sample_idx, order.snapshot().sample_idx);
    EXPECT_EQ(state.token_buffer, order.snapshot().token_buffer());
  }
}

TEST(BatchLoader, ContinuesAsIfNeverStopped) {
  const TempFolder folder;
  const TempFolder texts;
  const auto jsonl = jsonl_options(write_jsonl(folder, 20));
  for (int i = 0; i < 9; ++i) texts.write(std::to_string(i), std::string(static_cast<std::size_t>(i * i * 5), 'q'));
  auto text = jsonl_options(texts.path());
  text.dataset = "text";
  std::mt19937 random(3);
  for (const DataOptions& options : {jsonl, text}) {
    for (int trial = 0; trial < 10; ++trial) {
      auto straight = make_source(options);
      const int steps = std::uniform_int_distribution<int>(0, 30)(random);
      for (int i = 0; i < steps; ++i) straight->next();
      auto resumed = make_source(options);
      for (int i = 0; i < trial % 3; ++i) resumed->next();
      resumed->load_state(position_of(*straight));
      EXPECT_EQ(position_of(*resumed), position_of(*straight));
      for (int i = 0; i < 12; ++i) {
        const auto a = straight->next();
        const auto b = resumed->next();
        ASSERT_TRUE(a && b);
        ASSERT_TRUE(at::equal(a->tokens, b->tokens) && at::equal(a->labels, b->labels));
        EXPECT_EQ(position_of(*resumed), position_of(*straight));
      }
    }
  }
}

TEST(BatchLoader, AFiniteSourceEndsWithAShortBatchAndStaysAtItsEnd) {
  const TempFolder folder;
  // 43 bytes, BOS and EOS: 45 tokens are 5 windows of 9, a batch of 3 and one of 2.
  auto source =
      make_source(jsonl_options(folder.write("a.jsonl", "{\"text\":\"" + std::string(43, 'x') + "\"}"), false));
  EXPECT_EQ(source->next()->tokens.size(0), 3);
  EXPECT_EQ(source->next()->tokens.size(0), 2);
  EXPECT_FALSE(source->next());
  EXPECT_FALSE(source->next());
  EXPECT_EQ(parse_torchtitan_state(position_of(*source), 0).num_batches, 2);
}

TEST(BatchLoader, ErrorsComeOutOfNextInOrderAndAgain) {
  const TempFolder folder;
  // The first document gives two batches of 27 tokens, the second is broken.
  const auto path = folder.write("a.jsonl", "{\"text\":\"" + std::string(52, 'x') + "\"}\n{\"text\":\n");
  auto source = make_source(jsonl_options(path));
  EXPECT_TRUE(source->next());
  EXPECT_TRUE(source->next());
  const auto position = position_of(*source);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(data_error([&] { source->next(); }), HasSubstr(path.string() + ":2"));
    EXPECT_EQ(position_of(*source), position);
  }
  source->restart();
  EXPECT_EQ(parse_torchtitan_state(position_of(*source), 0).num_batches, 0);
  EXPECT_TRUE(source->next());
}

TEST(BatchLoader, EndsCleanlyAtAnyMoment) {
  const TempFolder folder;
  const auto options = jsonl_options(write_jsonl(folder, 20));
  for (int trial = 0; trial < 200; ++trial) {
    auto source = make_source(options);
    for (int i = 0; i < trial % 4; ++i) source->next();
    std::this_thread::sleep_for(std::chrono::microseconds(trial * 7 % 50));
  }
}

TEST(BatchLoader, BatchesOutliveTheLoader) {
  const TempFolder folder;
  auto source = make_source(jsonl_options(write_jsonl(folder, 20)));
  const auto batch = source->next();
  const auto copy = batch->tokens.clone();
  source.reset();
  EXPECT_TRUE(at::equal(batch->tokens, copy));
}

TEST(BatchLoader, TheDefaultCorpusGivesTokensOfTheDefaultTokenizer) {
  const std::filesystem::path assets = TITAN_TEST_ASSETS;
  const std::shared_ptr<Tokenizer> tokenizer = make_tokenizer(assets / "tokenizer");
  DataOptions text{
      .dataset = "text", .dataset_path = assets / "corpus/validation", .local_batch_size = 2, .seq_len = 64};
  DataOptions jsonl = text;
  jsonl.dataset = "c4_test";
  jsonl.dataset_path = assets / "corpus/validation.jsonl";
  auto from_text = make_batch_source(text, tokenizer);
  auto from_jsonl = make_batch_source(jsonl, tokenizer);
  // Both hold the same documents in the same order.
  for (int i = 0; i < 50; ++i) {
    const auto a = from_text->next();
    ASSERT_TRUE(at::equal(a->tokens, from_jsonl->next()->tokens));
    if (i == 0) {
      EXPECT_EQ(a->tokens[0][0].item<std::int64_t>(), tokenizer->bos_id());
    }
    EXPECT_LT(a->tokens.max().item<std::int64_t>(), tokenizer->vocab_size());
  }
}

}  // namespace
}  // namespace titan::data
