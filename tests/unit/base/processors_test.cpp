#include "base/process/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace titan {
namespace {

Processors on(const std::string& host, std::vector<int> cores, std::int64_t quota = 0) {
  const auto count = std::ssize(cores);
  return {host, std::move(cores), quota == 0 ? count : quota};
}

std::string text_of(const ProcessorShare& share) {
  return std::to_string(share.ranks) + " ranks, " + std::to_string(share.cores) + " cores, " +
         std::to_string(share.threads) + " threads";
}

TEST(Processors, RanksOfOneMaskShareIt) {
  const auto four = on("a", {0, 1, 2, 3});
  EXPECT_EQ(text_of(share_of_rank({four}, 0)), "1 ranks, 4 cores, 4 threads");
  EXPECT_EQ(text_of(share_of_rank({four, four}, 1)), "2 ranks, 4 cores, 2 threads");
  EXPECT_EQ(text_of(share_of_rank({four, four, four, four, four}, 1)), "5 ranks, 4 cores, 1 threads");
}

// mpirun --bind-to core, srun --cpu-bind
TEST(Processors, RanksThatAreBoundHaveTheirOwn) {
  const std::vector<Processors> bound = {on("a", {0, 1}), on("a", {2, 3}), on("b", {0, 1}), on("b", {2, 3})};
  for (std::size_t rank = 0; rank < bound.size(); ++rank)
    EXPECT_EQ(text_of(share_of_rank(bound, rank)), "2 ranks, 4 cores, 2 threads");
  EXPECT_EQ(text_of(share_of_rank({on("a", {0}), on("a", {1})}, 0)), "2 ranks, 2 cores, 1 threads");
}

// docker --cpus, Kubernetes' limits: all cores may be run on, some of the time.
TEST(Processors, AQuotaIsSharedByTheRanksOfAHost) {
  const auto limited = on("a", {0, 1, 2, 3, 4, 5, 6, 7}, 4);
  EXPECT_EQ(text_of(share_of_rank({limited}, 0)), "1 ranks, 4 cores, 4 threads");
  EXPECT_EQ(text_of(share_of_rank({limited, limited}, 0)), "2 ranks, 4 cores, 2 threads");
}

TEST(Processors, AreThoseOfTheMask) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const auto all = own_processors();
  ASSERT_FALSE(all.cores.empty());
  CPU_ZERO(&one);
  CPU_SET(all.cores.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  const auto found = own_processors();
  ::sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(found.cores, std::vector<int>{all.cores.back()});
  EXPECT_EQ(found.quota, 1);
  EXPECT_EQ(to_text(parse_processors(to_text(all))), to_text(all));
}

}  // namespace
}  // namespace titan
