#include "distributed/rendezvous.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "base/process/rank_process.h"
#include "tests/support/temporary_folder.h"

namespace titan::dist {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Ranks of one machine without a port in their environment, as mpirun starts them.
class PortFile : public ::testing::Test {
 protected:
  PortFile() { ::setenv("TMPDIR", folder_.path().c_str(), 1); }
  ~PortFile() override { ::unsetenv("TMPDIR"); }

  static LaunchEnv rank(int rank) {
    LaunchEnv env;
    env.launcher = Launcher::kOpenMpi;
    env.rank = rank;
    env.world_size = 2;
    env.rendezvous_key = "job";
    return env;
  }

  fs::path file() const { return folder_ / ("titan-train-" + std::to_string(::getuid()) + "-job.port"); }

  // Rank 1 looks before rank 0 writes its file; rank 0's word must still arrive.
  void expect_meeting() {
    auto rank_1 = std::async(std::launch::async, [&] {
      const auto store = connect_store(rank(1), 20s);
      store->setTimeout(20s);
      return store->get("word");
    });
    EXPECT_EQ(rank_1.wait_for(200ms), std::future_status::timeout);
    const auto store = connect_store(rank(0), 20s);
    store->set("word", std::vector<std::uint8_t>{7});
    EXPECT_EQ(rank_1.get(), std::vector<std::uint8_t>{7});
    forget_port_file(rank(0));
    EXPECT_FALSE(fs::exists(file()));
  }

  test::TemporaryFolder folder_;
};

TEST_F(PortFile, LeftByARankThatDiedIsNotBelieved) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = connect_store(rank(0), 20s);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(file()));
  expect_meeting();
}

TEST_F(PortFile, OfAnotherContainerIsBelievedOnlyIfItsPortAnswers) {
  RankProcess process = own_process();
  process.machine += "-of-before";
  folder_.write(file().filename(), "1 " + to_text(process) + "\n");
  expect_meeting();
}

TEST_F(PortFile, WithoutAProcessIsBelievedOnlyIfItsPortAnswers) {
  folder_.write(file().filename(), "1");
  expect_meeting();
}

TEST_F(PortFile, ThatStaysLeftOverIsNamed) {
  RankProcess process = own_process();
  ++process.start_time;
  folder_.write(file().filename(), "1 " + to_text(process) + "\n");
  try {
    connect_store(rank(1), 50ms);
    FAIL() << "a port was believed";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(file().string()), std::string::npos) << text;
    EXPECT_NE(text.find("left over from process " + std::to_string(::getpid()) + ", which has ended"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace titan::dist
