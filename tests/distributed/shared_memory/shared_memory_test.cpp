// Tests collectives through shared memory against Gloo, and with a peer that is late, different or dead.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/env.h"
#include "base/error.h"
#include "distributed/process_group.h"
#include "distributed/process_group_gloo.h"
#include "distributed/shared_memory/shared_channel.h"
#include "distributed/shared_memory/shared_memory_backend.h"
#include "tests/support/message_of.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

using dist::SharedChannel;
using test::message_of;
using testing::HasSubstr;

constexpr auto kTimeout = std::chrono::seconds(30);
// Capacity of the segment of a rank that is a thread. Each of these ranks maps all segments in one process, where
// ThreadSanitizer leaves few addresses.
constexpr std::size_t kCapacityOfThreads = std::size_t{1} << 30;

// The process groups of a rank that is a thread: through shared memory, and through Gloo only.
struct Groups {
  dist::ProcessGroup shared;
  dist::ProcessGroup gloo;
};

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name,
                                               int rank, int size) {
  return dist::make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size, kTimeout,
                                 /*local_only=*/true);
}

void on_threads(int size, const std::function<void(Groups&)>& body) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // Gloo's record of collectives is not made for ranks that are threads
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  const auto as_rank = [&](int rank) {
    c10d::PrefixStore addresses("addresses", store);
    auto backend = dist::make_shared_memory_backend(gloo_backend(store, "a", rank, size), addresses, rank, kTimeout,
                                                    kCapacityOfThreads);
    EXPECT_THAT(backend->getBackendName(), HasSubstr("shared memory"));
    Groups groups{{"shared", ranks, rank, std::move(backend), {}},
                  {"gloo", ranks, rank, gloo_backend(store, "b", rank, size), {}}};
    body(groups);
    groups.gloo.barrier();
  };
  std::vector<std::thread> threads;
  for (int r = 1; r < size; ++r) threads.emplace_back(as_rank, r);
  as_rank(0);
  for (auto& thread : threads) thread.join();
}

at::Tensor numbers(std::int64_t numel, at::ScalarType dtype, int rank) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1000 + rank));
  return (at::randn({numel}, generator, at::kDouble) * 1000).to(dtype);
}

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong};

at::ScalarType wider(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype; }

// Checks the reduce-scatter of `wide` by parts; the other ranks' parts are shared in the dtype of `narrow`.
void expect_parts_give(Groups& groups, const at::Tensor& narrow, const at::Tensor& wide) {
  const int size = groups.shared.size(), rank = groups.shared.rank();
  const auto numel = wide.numel() / size;
  auto expected = at::empty({numel}, wide.options());
  groups.gloo.reduce_scatter(expected, wide, dist::ReduceOp::kSum).wait();
  const auto own = [&](const at::Tensor& all) { return all.narrow(0, rank * numel, numel).clone(); };
  auto others = groups.shared.exchange_buffer((size - 1) * numel, narrow.options());
  const auto after = (rank + 1) * numel;
  at::cat_out(others, {narrow.narrow(0, 0, rank * numel), narrow.narrow(0, after, narrow.numel() - after)});
  const auto reduced = [&](const at::Tensor& part, dist::ReduceOp op) {
    return groups.shared.reduce_scatter_parts(part, others, wide.scalar_type(), op).wait_for_parts().at(0);
  };
  const auto what = [&] { return std::string(c10::toString(narrow.scalar_type())) + " x " + std::to_string(numel); };
  const auto in_place = own(wide);
  EXPECT_EQ(reduced(in_place, dist::ReduceOp::kSum).const_data_ptr(), in_place.const_data_ptr());
  EXPECT_TRUE(in_place.equal(expected)) << what();
  EXPECT_TRUE(reduced(own(narrow), dist::ReduceOp::kSum).equal(expected)) << what();
  if (!at::isFloatingType(wide.scalar_type())) return;
  EXPECT_TRUE(reduced(own(narrow), dist::ReduceOp::kAvg).equal(expected.div_(size))) << "the mean of " << what();
}

class SharedMemoryRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SharedMemoryRanks, testing::Values(2, 3, 4));

TEST_P(SharedMemoryRanks, GiveWhatGlooGives) {
  on_threads(GetParam(), [](Groups& groups) {
    const int size = groups.shared.size(), rank = groups.shared.rank();
    for (const auto dtype : kDtypes) {
      for (const std::int64_t numel : {1, 7, 300001}) {
        const auto input = numbers(numel * size, dtype, rank);
        const auto options = at::TensorOptions(dtype);
        auto found = at::empty({numel}, options), expected = at::empty({numel}, options);
        groups.shared.reduce_scatter(found, input, dist::ReduceOp::kSum).wait();
        groups.gloo.reduce_scatter(expected, input, dist::ReduceOp::kSum).wait();
        EXPECT_TRUE(found.equal(expected)) << dtype << " x " << numel;

        expect_parts_give(groups, input, input.to(wider(dtype)));

        auto all_found = at::empty({size * size * numel}, options), all_expected = at::empty_like(all_found);
        groups.shared.all_gather(all_found, input).wait();
        groups.gloo.all_gather(all_expected, input).wait();
        EXPECT_TRUE(all_found.equal(all_expected));

        for (const auto op : {dist::ReduceOp::kSum, dist::ReduceOp::kMax, dist::ReduceOp::kMin}) {
          auto sum = input.clone(), sum_expected = input.clone();
          groups.shared.all_reduce(sum, op).wait();
          groups.gloo.all_reduce(sum_expected, op).wait();
          EXPECT_TRUE(sum.equal(sum_expected)) << dtype << " x " << numel;
          auto of_all = at::empty({size * sum.numel()}, options);
          groups.gloo.all_gather(of_all, sum).wait();
          EXPECT_TRUE(of_all.view({size, -1}).eq(sum).all().item<bool>()) << "ranks have different bits";
        }
      }
    }
    for (int root = 0; root < size; ++root) {
      for (const std::int64_t numel : {0, 1, 300001}) {
        auto sent = numbers(numel, at::kFloat, rank);
        groups.shared.broadcast(sent, root).wait();
        EXPECT_TRUE(sent.equal(numbers(numel, at::kFloat, root))) << "root " << root << " x " << numel;
      }
    }
    // Sends more than can be in flight: senders wait for receivers.
    for (std::uint64_t i = 0; i < 2 * SharedChannel::kMaxInFlight; ++i) {
      auto sent = at::full({1}, rank, at::kLong);
      groups.shared.broadcast(sent, 0).wait();
      if (sent.item<std::int64_t>() != 0) ADD_FAILURE() << "broadcast " << i;
    }
    // An operation that is left to Gloo, and an input that is a part of the output.
    auto bytes = at::full({3}, rank, at::kByte);
    groups.shared.all_reduce(bytes, dist::ReduceOp::kMax).wait();
    EXPECT_TRUE(bytes.equal(at::full({3}, size - 1, at::kByte)));
    auto whole = at::full({size, 2}, -1, at::kLong);
    whole[rank].fill_(rank);
    groups.shared.all_gather(whole, whole[rank]).wait();
    EXPECT_TRUE(whole.equal(at::arange(size).view({size, 1}).expand({size, 2})));
    auto nothing = at::empty({0});
    groups.shared.all_reduce(nothing, dist::ReduceOp::kSum).wait();
  });
}

TEST(SharedMemory, GivesWhatGlooGivesToManyRanks) {
  on_threads(9, [](Groups& groups) {
    const int rank = groups.shared.rank();
    for (const std::int64_t numel : {5, 100000}) {  // the larger all-reduce is Gloo's own
      auto sum = numbers(numel, at::kFloat, rank), sum_expected = sum.clone();
      groups.shared.all_reduce(sum, dist::ReduceOp::kSum).wait();
      groups.gloo.all_reduce(sum_expected, dist::ReduceOp::kSum).wait();
      EXPECT_TRUE(sum.equal(sum_expected)) << numel;
      const auto input = numbers(9 * numel, at::kBFloat16, rank);
      expect_parts_give(groups, input, input.to(at::kFloat));
    }
  });
}

TEST_P(SharedMemoryRanks, MeetInABarrier) {
  std::atomic<int> arrived = 0;
  on_threads(GetParam(), [&](Groups& groups) {
    for (int round = 1; round <= 100; ++round) {
      ++arrived;
      groups.shared.barrier();
      EXPECT_GE(arrived, round * groups.shared.size());
    }
  });
}

TEST(SharedMemory, WaitsInAnyOrderAndForgetsDroppedWork) {
  on_threads(3, [](Groups& groups) {
    const int rank = groups.shared.rank();
    constexpr int kOps = 300;
    for (int round = 0; round < 5; ++round) {
      std::vector<at::Tensor> outputs;
      std::vector<dist::Work> works;
      for (int i = 0; i < kOps; ++i) {
        outputs.push_back(at::empty({3}, at::kLong));
        auto input = at::full({1}, 10 * i + rank, at::kLong);
        works.push_back(groups.shared.all_gather(outputs.back(), input));
        input.fill_(-1);  // copied when it started
      }
      for (int i = kOps - 1; i >= 0; --i) {
        if ((i + rank) % 3 == 0) {
          works[i] = {};
          continue;
        }
        works[i].wait();
        EXPECT_TRUE(outputs[i].equal(at::tensor({10 * i, 10 * i + 1, 10 * i + 2}, at::kLong))) << outputs[i];
      }
    }
  });
}

// Returns the number of files that this process shares with other ranks.
int count_segments() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    count += target.find("titan-collectives") != std::string::npos;
  }
  return count;
}

TEST(SharedMemory, IsWhatTheRanksOfOneHostUse) {
  test::on_ranks(3, [](dist::World& world) {
    auto& group = world.group();
    EXPECT_TRUE(group.shares_memory(at::kCPU));
    EXPECT_EQ(count_segments(), 1);
    auto input = group.exchange_buffer(6, at::kFloat);
    input.fill_(group.rank() + 1);
    auto sum = at::empty({2});
    group.reduce_scatter(sum, input, dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(sum.equal(at::full({2}, 6, at::kFloat))) << sum;
    auto part = group.exchange_buffer(4, at::kLong);
    part.fill_(group.rank());
    auto work = group.all_gather_parts(part);
    part.reset();
    const auto parts = work.wait_for_parts();
    ASSERT_EQ(parts.size(), 3);
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(parts[r].equal(at::full({4}, r, at::kLong))) << parts[r];
    const auto pair = group.rank() < 2 ? world.make_group("pair", {0, 1}) : nullptr;
    EXPECT_EQ(count_segments(), group.rank() < 2 ? 2 : 1);
  });
}

// A rank that is ahead does not overwrite what another still holds, and does not wait before its own wait().
TEST(SharedMemory, GathersIntoOneOutputForAllRanks) {
  test::on_ranks(3, [](dist::World& world) {
    auto& group = world.group();
    std::vector<at::Tensor> kept;
    for (int round = 0; round < 20; ++round) {
      int writes = 0;
      const auto write = [&](const at::Tensor& output) {
        ++writes;
        output.narrow(0, 2 * group.rank(), 2).fill_(10 * round + group.rank());
      };
      auto [output, work] = group.all_gather_in_place(6, at::kFloat, 2, write);
      if (round % 3 == group.rank()) group.barrier();
      work.wait();
      if (round % 3 != group.rank()) group.barrier();
      EXPECT_EQ(writes, 1);
      const auto expected = at::tensor({0.f, 0.f, 1.f, 1.f, 2.f, 2.f}) + 10 * round;
      EXPECT_TRUE(output.equal(expected)) << output;
      for (int r = 0; r < static_cast<int>(kept.size()); ++r)
        EXPECT_EQ(kept[r][0].item<float>(), 10 * (round - static_cast<int>(kept.size()) + r));
      kept.push_back(output);
      if (kept.size() > 2) kept.erase(kept.begin());
      // All ranks see what one rank writes: they share the memory.
      group.barrier();
      if (group.rank() == 1) output[0].add_(5);
      group.barrier();
      EXPECT_EQ(output[0].item<float>(), 10 * round + 5);
      group.barrier();
      if (group.rank() == 2) output[0].sub_(5);
      group.barrier();
    }
  });
}

// The environment describes a job on several machines; the ranks tell each other on which host they really are.
TEST(SharedMemory, IsUsedWithinAGroupOfOneHostInALargerJob) {
  test::on_ranks(3, [](dist::World& world) {
    LaunchEnv env = world.env();
    env.local_world_size = 1;
    env.master_port = 0;
    env.listen_fd = -1;
    env.rendezvous_key = world.group().broadcast_bytes(std::to_string(getpid()) + "-larger-job", 0);
    dist::World larger(env, c10::DeviceType::CPU, kTimeout);
    EXPECT_FALSE(larger.group().shares_memory(at::kCPU));
    if (world.rank() < 2) {
      const auto pair = larger.make_group("pair", {0, 1});
      EXPECT_TRUE(pair->shares_memory(at::kCPU));
      auto one = at::ones({3});
      pair->all_reduce(one, dist::ReduceOp::kSum).wait();
      EXPECT_TRUE(one.equal(at::full({3}, 2, at::kFloat)));
    }
    larger.shutdown();
  });
}

// One rank may not make so large a file: both use Gloo, and neither waits for the other.
TEST(SharedMemory, IsNotUsedWhenOneRankHasNone) {
  test::on_ranks(2, [](dist::World& world) {
    std::ostringstream log;
    spdlog::default_logger()->sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (world.rank() == 1) {
      const rlimit small{4096, limit.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    auto& group = world.own_group("own");
    EXPECT_FALSE(group.shares_memory(at::kCPU));
    auto one = at::ones({3});
    group.all_reduce(one, dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(one.equal(at::full({3}, 2, at::kFloat)));
    EXPECT_THROW((void)group.all_gather_parts(one), InternalError);
    EXPECT_THROW((void)group.all_gather_in_place(6, at::kFloat, 3, [](const at::Tensor&) {}), InternalError);
    EXPECT_EQ(group.exchange_buffer(3, at::kFloat).numel(), 3);
    setrlimit(RLIMIT_FSIZE, &limit);
    spdlog::default_logger()->sinks().pop_back();
    const auto* const warning =
        "[dist] ranks of this host do not share memory and use sockets: rank 1 cannot reserve addresses for memory "
        "between ranks: File too large";
    EXPECT_EQ(log.str().find(warning) != std::string::npos, world.rank() == 0) << log.str();
  });
}

// Gloo's closed connection shows the end of the rank; the store alone would wait for the time limit.
TEST(SharedMemory, IsNotMadeWithARankThatEnded) {
  test::on_ranks(2, [](dist::World& world) {
    const auto file = std::filesystem::temp_directory_path() / "store";
    const auto store = c10::make_intrusive<c10d::FileStore>(file.string(), 2);
    auto gloo = gloo_backend(store, "gloo", world.rank(), 2);
    world.shutdown();  // or the watch would end this process first
    if (world.rank() == 1) std::_Exit(0);
    const auto message =
        message_of<std::exception>([&] { dist::make_shared_memory_backend(gloo, *store, 0, kTimeout); });
    EXPECT_THAT(message, testing::AnyOf(HasSubstr("by peer"), HasSubstr("Broken pipe")));
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

// Checking the process shows the end of the rank, long before the time limit of these groups.
TEST(SharedMemory, EndsTheWaitForARankThatEnded) {
  test::on_ranks(2, [](dist::World& world) {
    world.shutdown();  // or the watch would end this process before the wait does
    auto first = at::ones({1}), second = at::ones({1});
    auto& group = world.group();
    auto work = group.all_reduce(first, dist::ReduceOp::kSum);
    if (world.rank() == 1) std::_Exit(0);
    work.wait();  // what it published before is there
    EXPECT_EQ(first.item<float>(), 2);
    const auto message = message_of<PeerError>([&] { group.all_reduce(second, dist::ReduceOp::kSum).wait(); });
    EXPECT_THAT(message, HasSubstr("all_reduce over 'world' failed: a peer rank ended"));
    EXPECT_THAT(message, HasSubstr("rank 1, whose part in all_reduce (sum) of 1 elements of Float rank 0 waited"));
    EXPECT_THAT(message, HasSubstr("has ended"));
    const std::function<void()> others[] = {[&] { group.broadcast_bytes("plan", 0); },
                                            [&] { group.broadcast_bytes("plan", 1); }, [&] { group.barrier(); }};
    for (const auto& other : others) EXPECT_THAT(message_of<PeerError>(other), HasSubstr("has ended"));
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

}  // namespace
}  // namespace titan
