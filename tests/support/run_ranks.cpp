#include "tests/support/run_ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/signal.h"
#include "tests/support/guard.h"
#include "tests/support/rank_starter.h"

namespace titan::test {
namespace {

namespace fs = std::filesystem;

void run_as_rank(int num_ranks, const std::function<void(dist::World&)>& body, c10::DeviceType device) {
  at::set_num_threads(1);
  LaunchEnv env;
  env.rank = env.local_rank = std::stoi(std::getenv("TITAN_TEST_RANK"));
  env.world_size = env.local_world_size = num_ranks;
  env.rendezvous_key = "ranks";  // rank 0 takes a free port and publishes it in TMPDIR, which only these ranks use
  auto world = std::make_unique<dist::World>(env, device, guard(30));
  try {
    body(*world);
  } catch (const std::exception& error) {
    world.release()->report_failure(error.what());  // kept: its watch may wait for g_last_word, which is never released
    throw;
  }
  world->shutdown();
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "exit code " + std::to_string(WEXITSTATUS(status));
}

std::vector<RankEnd> start_ranks(int num_ranks) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string test = std::string(info->test_suite_name()) + "." + info->name();
  std::string folder = fs::temp_directory_path() / "titan-ranks-XXXXXX";
  RankStart start{num_ranks, static_cast<int>(guard(60).count()), {}, {}};
  TITAN_CHECK(::mkdtemp(folder.data()) != nullptr, folder);
  TITAN_CHECK(test.copy(start.test, sizeof(start.test)) < sizeof(start.test), test);
  TITAN_CHECK(folder.copy(start.folder, sizeof(start.folder)) < sizeof(start.folder), folder);
  TITAN_CHECK(num_ranks <= kMostRanks, "too many ranks");
  const RankEnds ends = run_ranks(start);
  EXPECT_FALSE(ends.timed_out) << "ranks were ended after " << start.guard_ms << " ms";
  std::vector<RankEnd> found;
  for (int rank = 0; rank < num_ranks; ++rank)
    found.push_back({how_it_ended(ends.status[rank]), read_file(fs::path(folder) / (std::to_string(rank) + ".log"))});
  fs::remove_all(folder);
  return found;
}

}  // namespace

bool is_rank() { return std::getenv("TITAN_TEST_RANK") != nullptr; }

void on_ranks(int num_ranks, const std::function<void(dist::World&)>& body, c10::DeviceType device) {
  if (is_rank()) return run_as_rank(num_ranks, body, device);
  const auto ends = start_ranks(num_ranks);
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_EQ(ends[rank].how, "exit code 0") << "rank " << rank << " of " << num_ranks << ":\n" << ends[rank].said;
}

std::vector<RankEnd> ends_of_ranks(int num_ranks, const std::function<void(dist::World&)>& body) {
  if (!is_rank()) return start_ranks(num_ranks);
  run_as_rank(num_ranks, body, c10::DeviceType::CPU);
  return {};
}

}  // namespace titan::test
