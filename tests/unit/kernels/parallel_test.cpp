#include "kernels/cpu/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

namespace titan::kernels {
namespace {

class ParallelFor : public testing::Test {
 protected:
  ~ParallelFor() override { at::set_num_threads(threads_before_); }

  const int threads_before_ = at::get_num_threads();
};

struct Parts {
  std::set<std::pair<std::int64_t, std::int64_t>> ranges;
  std::set<std::thread::id> threads;
};
Parts parts_of(std::int64_t begin, std::int64_t end, std::int64_t grain) {
  Parts parts;
  std::mutex mutex;
  parallel_for(begin, end, grain, [&](std::int64_t first, std::int64_t last) {
    const std::lock_guard lock(mutex);
    parts.ranges.insert({first, last});
    parts.threads.insert(std::this_thread::get_id());
  });
  return parts;
}

TEST_F(ParallelFor, UsesTheThreadsThatATenHas) {
#if !defined(__clang__)
  at::set_num_threads(3);
  const Parts parts = parts_of(10, 40, 1);
  EXPECT_EQ(parts.threads.size(), 3);
  EXPECT_EQ(parts.ranges, (decltype(parts.ranges){{10, 20}, {20, 30}, {30, 40}}));
#endif
  at::set_num_threads(1);
  EXPECT_EQ(parts_of(10, 40, 1).ranges, (decltype(Parts::ranges){{10, 40}}));
}

TEST_F(ParallelFor, LeavesWhatIsSmallToOneThread) {
  at::set_num_threads(3);
  EXPECT_EQ(parts_of(0, 30, 30).ranges.size(), 1);
  EXPECT_EQ(parts_of(7, 7, 1).ranges.size(), 0);
}

TEST_F(ParallelFor, ThrowsWhatABodyThrows) {
  at::set_num_threads(3);
  const auto refuse = [](std::int64_t, std::int64_t) { throw std::runtime_error("refused"); };
  EXPECT_THROW(parallel_for(0, 30, 1, refuse), std::runtime_error);
}

}  // namespace
}  // namespace titan::kernels
