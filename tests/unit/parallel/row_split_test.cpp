// Tests how rows are dealt out to ranks, and which queries attend to which keys.
#include "parallel/context/row_split.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "parallel/context/attention_blocks.h"

namespace titan::parallel {
namespace {

constexpr LoadBalance kAll[] = {LoadBalance::kNone, LoadBalance::kHeadTail, LoadBalance::kByWork};

at::Tensor lengths_of(const std::vector<std::int64_t>& lengths) { return at::tensor(lengths, at::kLong); }

// Returns random documents of `rows` rows.
std::vector<std::int64_t> random_lengths(std::mt19937& random, std::int64_t rows, std::int64_t length) {
  std::vector<std::int64_t> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t left = length; left > 0;) {
      const std::int64_t document = std::min<std::int64_t>(left, 1 + static_cast<std::int64_t>(random() % 40));
      out.push_back(document);
      left -= document;
    }
  }
  return out;
}

std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

TEST(RowSplit, DealsOutPartsFromFrontAndEnd) {
  const auto split = split_row(LoadBalance::kHeadTail, 16, 4, lengths_of({16}));
  EXPECT_EQ(split, (std::vector<TokenRanges>{{{0, 2}, {14, 16}}, {{2, 4}, {12, 14}}, {{4, 6}, {10, 12}}, {{6, 10}}}));
  EXPECT_EQ(numbers(positions_of(split[1])), (std::vector<std::int64_t>{2, 3, 12, 13}));
}

TEST(RowSplit, DealsOutPartsInOrder) {
  EXPECT_EQ(split_row(LoadBalance::kNone, 8, 2, lengths_of({8})), (std::vector<TokenRanges>{{{0, 4}}, {{4, 8}}}));
}

TEST(RowSplit, RefusesRowsThatDoNotDivide) {
  EXPECT_THROW(split_row(LoadBalance::kHeadTail, 6, 2, lengths_of({6})), InternalError);
}

TEST(RowSplit, GivesEachTokenToOneRank) {
  std::mt19937 random(1);
  for (const LoadBalance balance : kAll) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const std::int64_t length : {2 * ranks, 64 * ranks, 500 * ranks}) {
        std::vector<std::int64_t> all;
        for (const auto& ranges : split_row(balance, length, ranks, lengths_of(random_lengths(random, 3, length)))) {
          const auto positions = numbers(positions_of(ranges));
          EXPECT_EQ(std::ssize(positions), length / ranks);
          EXPECT_TRUE(std::ranges::is_sorted(positions));
          all.insert(all.end(), positions.begin(), positions.end());
        }
        std::ranges::sort(all);
        for (std::int64_t i = 0; i < length; ++i) ASSERT_EQ(all.at(static_cast<std::size_t>(i)), i);
      }
    }
  }
}

// Returns the number of keys that the tokens of these ranges attend to, token by token.
std::int64_t work_of(const TokenRanges& ranges, const std::vector<std::int64_t>& lengths, std::int64_t length) {
  std::int64_t work = 0, position = 0;
  for (const std::int64_t document : lengths) {
    for (std::int64_t i = 0; i < document; ++i, ++position)
      for (const TokenRange& range : ranges)
        if (range.begin <= position % length && position % length < range.end) work += i + 1;
  }
  return work;
}

// A part has at most the work of its last token times its tokens. The rank with most work got its last part when it had
// least, so it exceeds the mean by at most one part; with one part more or less each, ranks differ by two.
TEST(RowSplit, BalancesTheWorkOfDocuments) {
  constexpr std::int64_t kLength = 4096, kTokensOfPart = kLength / 4 / 16;
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{4096}, {3000, 1000, 96}, {64, 64, 3968}, {2048, 2048}, {1, 4095}}) {
    std::vector<std::int64_t> work;
    for (const auto& ranges : split_row(LoadBalance::kByWork, kLength, 4, lengths_of(lengths)))
      work.push_back(work_of(ranges, lengths, kLength));
    EXPECT_LE(std::ranges::max(work) - std::ranges::min(work), 2 * kTokensOfPart * std::ranges::max(lengths));
  }
  // One long document after short ones: parts from front and end are far from equal, these are not.
  const std::vector<std::int64_t> lengths(32, 64);
  auto uneven = lengths;
  uneven.push_back(2048);
  const auto most = [&](LoadBalance balance) {
    std::int64_t out = 0;
    for (const auto& ranges : split_row(balance, kLength, 4, lengths_of(uneven)))
      out = std::max(out, work_of(ranges, uneven, kLength));
    return out;
  };
  EXPECT_LT(static_cast<double>(most(LoadBalance::kByWork)), 0.7 * static_cast<double>(most(LoadBalance::kHeadTail)));
}

// Returns, for each query of each row, how often it sees each key, of all ranks together, by their positions.
at::Tensor seen(const std::vector<TokenRanges>& tokens, const std::vector<TokenRanges>& sources, std::int64_t rows,
                std::int64_t length, const std::vector<std::int64_t>& lengths) {
  auto counts = at::zeros({rows, length, length}, at::kInt);
  for (const auto& ranges : tokens) {
    const auto queries = positions_of(ranges);
    for (const auto& source : sources) {
      const auto keys = positions_of(source);
      for (const AttentionBlock& block : attention_blocks(ranges, source, rows, length, lengths_of(lengths)))
        for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row)
          for (std::int64_t i = 0; i < block.queries; ++i)
            for (std::int64_t j = 0; j <= std::min(block.keys - 1, i + block.offset); ++j)
              counts[row][queries[block.first_query + i].item<std::int64_t>()]
                    [keys[block.first_key + j].item<std::int64_t>()] += 1;
    }
  }
  return counts;
}

at::Tensor causal_within(const std::vector<std::int64_t>& lengths, std::int64_t rows, std::int64_t length) {
  auto counts = at::zeros({rows, length, length}, at::kInt);
  std::int64_t position = 0;
  for (const std::int64_t document : lengths) {
    counts[position / length]
        .narrow(0, position % length, document)
        .narrow(1, position % length, document)
        .copy_(at::ones({document, document}, at::kInt).tril());
    position += document;
  }
  return counts;
}

TEST(AttentionBlocks, ShowEachQueryItsDocumentOnce) {
  std::mt19937 random(2);
  for (const LoadBalance balance : kAll) {
    for (const int ranks : {2, 3}) {
      for (const bool has_documents : {false, true}) {
        const std::int64_t rows = 2, length = 12 * ranks;
        const auto lengths =
            has_documents ? random_lengths(random, rows, length) : std::vector<std::int64_t>{length, length};
        const auto tokens = split_row(balance, length, ranks, lengths_of(lengths));
        const auto expected = causal_within(lengths, rows, length);
        EXPECT_TRUE(seen(tokens, tokens, rows, length, lengths).equal(expected));
        EXPECT_TRUE(seen(tokens, {{{0, length}}}, rows, length, lengths).equal(expected));
      }
    }
  }
}

TEST(AttentionBlocks, AreFewWithoutDocuments) {
  const auto tokens = split_row(LoadBalance::kHeadTail, 32, 4, lengths_of({32, 32, 32}));
  const auto blocks = [&](std::size_t source) {
    return attention_blocks(tokens[1], tokens[source], 3, 32, lengths_of({32, 32, 32}));
  };
  const auto block = [](std::int64_t first_query, std::int64_t queries, std::int64_t keys, std::int64_t offset) {
    return std::vector<AttentionBlock>{{.first_row = 0,
                                        .rows = 3,
                                        .first_query = first_query,
                                        .queries = queries,
                                        .first_key = 0,
                                        .keys = keys,
                                        .offset = offset}};
  };
  EXPECT_EQ(blocks(0), block(0, 8, 4, 4));  // all queries, the first half of the keys
  EXPECT_EQ(blocks(1), block(0, 8, 8, 0));  // one triangle
  EXPECT_EQ(blocks(2), block(4, 4, 8, 8));  // the second half of the queries, all keys
}

}  // namespace
}  // namespace titan::parallel
