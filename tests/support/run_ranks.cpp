#include "tests/support/run_ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/signal.h"
#include "tests/support/guard.h"
#include "tests/support/rank_starter.h"

namespace titan::test {
namespace {

namespace fs = std::filesystem;

void run_as_rank(int num_ranks, const std::function<void(dist::World&)>& body) {
  at::set_num_threads(1);
  LaunchEnv env;
  env.rank = env.local_rank = std::stoi(std::getenv("TITAN_TEST_RANK"));
  env.world_size = env.local_world_size = num_ranks;
  env.rendezvous_key = "ranks";  // rank 0 takes a free port and tells it in TMPDIR, which is these ranks' own
  dist::World world(env, c10::DeviceType::CPU, guard(30));
  try {
    body(world);
  } catch (const std::exception& error) {
    world.report_failure(error.what());
    throw;
  }
  world.shutdown();
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "exit code " + std::to_string(WEXITSTATUS(status));
}

void start_ranks(int num_ranks) {
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
  for (int rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(how_it_ended(ends.status[rank]), "exit code 0")
        << "rank " << rank << " of " << num_ranks << ":\n"
        << read_file(fs::path(folder) / (std::to_string(rank) + ".log"));
  }
  fs::remove_all(folder);
}

}  // namespace

bool is_rank() { return std::getenv("TITAN_TEST_RANK") != nullptr; }

void on_ranks(int num_ranks, const std::function<void(dist::World&)>& body) {
  is_rank() ? run_as_rank(num_ranks, body) : start_ranks(num_ranks);
}

}  // namespace titan::test
