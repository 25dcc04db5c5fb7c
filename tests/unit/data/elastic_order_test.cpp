#include "data/order/elastic_order.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "data/io/hash.h"
#include "data/order/permutation.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRowLen = 7;

// Item i has (i * 37) % 23 + 1 tokens (every 50th: + 90), all equal to base + i; item 3 has none.
class NumberSource final : public TokenSource {
 public:
  explicit NumberSource(std::int64_t items, std::int32_t base = 0) : items_(items), base_(base) {}

  static std::int64_t length(std::int64_t item) { return item == 3 ? 0 : item * 37 % 23 + (item % 50 == 0 ? 90 : 1); }

  std::int64_t num_items() const override { return items_; }
  TokenRun tokens(std::int64_t index) const override {
    if (index == bad) throw BadRecord("item " + std::to_string(index) + " is bad");
    return whole_run(
        std::vector<std::int32_t>(static_cast<std::size_t>(length(index)), base_ + static_cast<std::int32_t>(index)));
  }
  std::int64_t vocab_size() const override { return 1 << 30; }
  std::string name() const override { return "numbers"; }

  std::int64_t bad = -1;

 private:
  std::int64_t items_;
  std::int32_t base_;
};

using Row = std::vector<std::int64_t>;

Row next_row(ElasticOrder& lanes) {
  Row row(kRowLen + 1);
  std::vector<std::int64_t> labels(kRowLen);
  EXPECT_TRUE(lanes.next_row({std::span(row).first(kRowLen), labels, {}, {}}));
  EXPECT_TRUE(std::equal(row.begin() + 1, row.end() - 1, labels.begin()));
  row.back() = labels.back();
  return row;
}

struct Plan {
  std::int64_t num_lanes = 12;
  std::uint64_t seed = 5;
  std::vector<std::shared_ptr<const TokenSource>> sources = {std::make_shared<NumberSource>(101)};
  std::vector<double> weights = {1};
  OnBadRecord on_bad_record = OnBadRecord::kError;

  ElasticOrder lanes(std::int64_t rank = 0, std::int64_t ranks = 1) const {
    const std::int64_t own = num_lanes / ranks;
    return ElasticOrder(sources, weights,
                        {.seq_len = kRowLen,
                         .num_lanes = num_lanes,
                         .first_lane = own * rank,
                         .own_lanes = own,
                         .local_batch_size = own % 2 == 0 ? 2 : 1,
                         .seed = seed,
                         .on_bad_record = on_bad_record});
  }
};

// Returns the rows of `steps` global batches, read by one rank.
std::vector<Row> straight(const Plan& setup, std::int64_t steps) {
  ElasticOrder lanes = setup.lanes();
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < steps * setup.num_lanes; ++i) rows.push_back(next_row(lanes));
  return rows;
}

Values position_of(const ElasticOrder& lanes) { return saved_values(lanes.position()->entries(0)); }

TEST(Permutation, IsABijectionForEverySizeAndKey) {
  for (std::int64_t size = 1; size < 200; ++size) {
    for (const std::uint64_t key : {0u, 1u, 77u}) {
      const Permutation permutation(size, key);
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t value = permutation(i);
        ASSERT_TRUE(value >= 0 && value < size);
        seen.insert(value);
      }
      ASSERT_EQ(std::ssize(seen), size) << "size " << size << " key " << key;
    }
  }
  // A large odd size, checked on a sample: images are in range and differ.
  const std::int64_t large = 1'000'000'007'123;
  const Permutation permutation(large, 9);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 20'000; ++i) seen.insert(permutation(large - 1 - i * 31'337));
  EXPECT_EQ(seen.size(), 20'000u);
  EXPECT_TRUE(*seen.begin() >= 0 && *seen.rbegin() < large);
}

// Neighbors and fixed points are as frequent as in a random permutation. Over 50 keys of 1,000 items the number of
// fixed points is Poisson with mean 50; 50 +- 6 sigma (7.1 each) is 8 to 92. The same holds for neighbors.
TEST(Permutation, Shuffles) {
  int fixed = 0, neighbours = 0;
  for (std::uint64_t key = 0; key < 50; ++key) {
    const Permutation permutation(1000, key);
    for (std::int64_t i = 0; i < 999; ++i) {
      fixed += permutation(i) == i;
      neighbours += permutation(i + 1) == permutation(i) + 1;
    }
  }
  EXPECT_TRUE(fixed > 8 && fixed < 92) << fixed;
  EXPECT_TRUE(neighbours > 8 && neighbours < 92) << neighbours;
}

TEST(Permutation, DependsOnTheKeyAlone) {
  // The order is fixed forever: checkpoints rely on it.
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 7; ++i) order.push_back(Permutation(7, 42)(i));
  std::vector<std::int64_t> other;
  for (std::int64_t i = 0; i < 7; ++i) other.push_back(Permutation(7, 43)(i));
  EXPECT_NE(order, other);
  std::vector<std::int64_t> again;
  for (std::int64_t i = 0; i < 7; ++i) again.push_back(Permutation(7, 42)(i));
  EXPECT_EQ(order, again);
}

TEST(ElasticOrder, GlobalBatchesAreTheSameAtEveryWorldSize) {
  const Plan setup;
  const std::int64_t steps = 60;  // some passes over the 101 items
  const auto expected = straight(setup, steps);
  for (const std::int64_t ranks : {2, 3, 4, 6, 12}) {
    const std::int64_t own = setup.num_lanes / ranks;
    std::vector<Row> rows(expected.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      ElasticOrder lanes = setup.lanes(rank, ranks);
      for (std::int64_t step = 0; step < steps; ++step) {
        for (std::int64_t i = 0; i < own; ++i) {
          const auto at = static_cast<std::size_t>(step * setup.num_lanes + rank * own + i);
          rows[at] = next_row(lanes);
          ASSERT_EQ(lanes.sample_id().sample, static_cast<std::int64_t>(at));
        }
      }
    }
    ASSERT_EQ(rows, expected) << ranks << " ranks";
  }
}

// Stops at random steps and resumes at new world sizes: each new rank takes its lanes from the ranks that had them.
TEST(ElasticOrder, GoesOnAtAnotherWorldSizeWithNothingTwiceAndNothingLost) {
  Plan setup;
  setup.sources.push_back(std::make_shared<NumberSource>(37, 1000));
  setup.weights = {0.7, 0.3};
  const std::int64_t steps = 80;
  const auto expected = straight(setup, steps);
  const std::int64_t worlds[] = {1, 2, 3, 4, 6, 12};
  std::mt19937 random(1);
  for (int trial = 0; trial < 20; ++trial) {
    Values saved;  // by all ranks
    std::vector<Row> rows;
    std::int64_t step = 0;
    while (step < steps) {
      const std::int64_t ranks = worlds[random() % 6];
      const std::int64_t own = setup.num_lanes / ranks;
      const std::int64_t until = std::min<std::int64_t>(steps, step + 1 + static_cast<std::int64_t>(random() % 25));
      rows.resize(static_cast<std::size_t>(until * setup.num_lanes));
      Values next_saved;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        ElasticOrder lanes = setup.lanes(rank, ranks);
        if (step > 0) {
          ASSERT_EQ(lanes.load_state(saved), step * own / (own % 2 == 0 ? 2 : 1));
        }
        for (std::int64_t at = step; at < until; ++at) {
          for (std::int64_t i = 0; i < own; ++i) {
            rows[static_cast<std::size_t>(at * setup.num_lanes + rank * own + i)] = next_row(lanes);
          }
        }
        next_saved.merge(position_of(lanes));
      }
      saved = std::move(next_saved);
      step = until;
    }
    ASSERT_EQ(rows, expected) << "trial " << trial;
  }
}

// Over the tokens of all lanes, every item appears once per pass, with all its tokens.
TEST(ElasticOrder, EveryPassReadsEveryItemOnce) {
  const Plan setup;
  std::map<std::int64_t, std::int64_t> tokens;
  const std::int64_t steps = 400;
  for (const Row& row : straight(setup, steps)) {
    for (const std::int64_t token : row) ++tokens[token];
  }
  std::int64_t in_a_pass = 0;
  for (std::int64_t i = 0; i < 101; ++i) in_a_pass += NumberSource::length(i);
  const double passes = static_cast<double>(steps * setup.num_lanes * (kRowLen + 1)) / static_cast<double>(in_a_pass);
  // Lanes drift apart by some items of a pass, so an item appears `passes` +- the distance of the first and last lane.
  for (std::int64_t i = 0; i < 101; ++i) {
    if (NumberSource::length(i) == 0) continue;
    const double times = static_cast<double>(tokens[i]) / static_cast<double>(NumberSource::length(i));
    EXPECT_NEAR(times, passes, 0.25 * passes) << "item " << i;
  }
  // The first 101 items that lanes begin are all different.
  std::set<std::int64_t> first;
  const std::uint64_t key = mix_bits(mix_bits(mix_bits(5) ^ 0) ^ 0);
  for (std::int64_t i = 0; i < 101; ++i) first.insert(Permutation(101, key)(i));
  EXPECT_EQ(first.size(), 101u);
}

TEST(ElasticOrder, SeedAndPassChangeTheOrder) {
  Plan setup;
  const auto first = straight(setup, 20);
  EXPECT_EQ(straight(setup, 20), first);
  setup.seed = 6;
  EXPECT_NE(straight(setup, 20), first);
}

// With fewer documents than lanes, documents are split so that no two lanes read the same tokens.
TEST(ElasticOrder, FewDocumentsAreCutIntoParts) {
  const Plan whole;
  const auto source = std::make_shared<NumberSource>(101);
  const auto parts = with_items(source, 1000);
  ASSERT_EQ(parts->num_items(), 1010);
  for (std::int64_t item = 0; item < 101; ++item) {
    std::vector<std::int32_t> joined;
    for (std::int64_t part = 0; part < 10; ++part) {
      const TokenRun run = parts->tokens(item * 10 + part);
      for (std::size_t i = run.begin; i < run.end; ++i) joined.push_back((*run.owner)[i]);
      EXPECT_NEAR(static_cast<double>(run.size()), static_cast<double>(NumberSource::length(item)) / 10, 1);
    }
    EXPECT_EQ(joined, *source->tokens(item).owner);
  }
  EXPECT_EQ(with_items(source, 101), source);
}

TEST(ElasticOrder, RefusesAPositionOfOtherData) {
  const Plan setup;
  ElasticOrder lanes = setup.lanes();
  for (int i = 0; i < 24; ++i) next_row(lanes);
  const Values position = position_of(lanes);
  const auto message = [&](const Plan& other, const Values& at) {
    ElasticOrder fresh = other.lanes();
    return data_error([&] {
      fresh.load_state(at);
      for (int i = 0; i < 24; ++i) next_row(fresh);
    });
  };
  Plan other = setup;
  other.seed = 9;
  EXPECT_THAT(message(other, position), HasSubstr("debug.seed"));
  other = setup;
  other.num_lanes = 6;
  EXPECT_THAT(message(other, position), HasSubstr("global batch size (the number of lanes) was 12, it is 6"));
  other = setup;
  other.sources = {std::make_shared<NumberSource>(102)};
  EXPECT_THAT(message(other, position), HasSubstr("was 101, it is 102"));
  const auto with_lane_3 = [&](auto change) {
    ElasticState state = parse_elastic_state(position, 0, 12);
    change(state.lanes[3]);
    return saved_values(to_entries(state));
  };
  EXPECT_THAT(message(setup, with_lane_3([](LaneState& lane) { lane.windows += 1; })), HasSubstr("lane 3 is damaged"));
  EXPECT_THAT(message(setup, with_lane_3([](LaneState& lane) { lane.cursors.pop_back(); })),
              HasSubstr("lane 3 is damaged"));
  EXPECT_THAT(message(setup, with_lane_3([](LaneState& lane) { lane.cursors[1] = 1000; })),
              HasSubstr("the data or the tokenizer changed"));
  Values cut = position;
  cut.erase("dataloader.titan.lane_3");
  EXPECT_THAT(message(setup, cut), HasSubstr("it has 11 lanes of this rank's 12"));
}

TEST(ElasticOrder, BeginsAgain) {
  const Plan setup;
  ElasticOrder lanes = setup.lanes();
  const auto first = position_of(lanes);
  for (int i = 0; i < 31; ++i) next_row(lanes);
  lanes.restart();
  EXPECT_EQ(position_of(lanes), first);
  const auto expected = straight(setup, 2);
  for (const Row& row : expected) EXPECT_EQ(next_row(lanes), row);
}

TEST(ElasticOrder, BadRecordsAreErrorsOrCounted) {
  Plan setup;
  auto bad = std::make_shared<NumberSource>(101);
  bad->bad = 17;
  setup.sources = {bad};
  EXPECT_THAT(data_error([&] { straight(setup, 40); }), HasSubstr("item 17 is bad"));
  setup.on_bad_record = OnBadRecord::kSkip;
  ElasticOrder lanes = setup.lanes();
  std::set<std::int64_t> seen;
  for (int i = 0; i < 40 * 12; ++i) {
    for (const std::int64_t token : next_row(lanes)) seen.insert(token);
  }
  EXPECT_GE(lanes.bad_records(), 1);
  EXPECT_FALSE(seen.contains(17));
  EXPECT_EQ(seen.size(), 99u);  // 101 without the bad one and the empty one
}

TEST(Mixture, SharesAreExactAndTheChoiceIsPure) {
  const std::vector<double> weights = {5, 2, 2.5, 0.5};
  const Mixture mixture(weights, 3);
  std::vector<std::int64_t> counts(4);
  for (std::int64_t sample = 0; sample < 100'000; ++sample) {
    ++counts[mixture.source_of(sample)];
    if (sample % 997 != 0 || sample == 0) continue;
    // The discrepancy of a rotation by the golden ratio is below log2(n) points, over either end of an arc.
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(static_cast<double>(counts[k]), weights[k] / 10 * static_cast<double>(sample + 1), 5) << sample;
    }
  }
  const Mixture same(weights, 3), other(weights, 4);
  int differ = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    EXPECT_EQ(mixture.source_of(sample), same.source_of(sample));
    differ += mixture.source_of(sample) != other.source_of(sample);
  }
  EXPECT_GT(differ, 0);
  // A lane sees every 12th sample, and its shares hold too.
  std::vector<std::int64_t> lane(4);
  for (std::int64_t step = 0; step < 10'000; ++step) ++lane[mixture.source_of(step * 12 + 5)];
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(static_cast<double>(lane[k]), weights[k] * 1000, 20);
}

}  // namespace
}  // namespace titan::data
