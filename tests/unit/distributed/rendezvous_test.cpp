#include "distributed/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process/rank_process.h"
#include "tests/support/message_of.h"
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

// A socket of 127.0.0.1 that listens and never answers.
class Silent {
 public:
  explicit Silent(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(::bind(fd_, address(), size), 0);
    EXPECT_EQ(::listen(fd_, backlog), 0);
    EXPECT_EQ(::getsockname(fd_, address(), &size), 0);
  }
  ~Silent() {
    for (const int client : clients_) ::close(client);
    ::close(fd_);
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;

  LaunchEnv rank_1() const {
    LaunchEnv env;
    env.launcher = Launcher::kTorchrun;
    env.rank = 1;
    env.world_size = 2;
    env.master_addr = "127.0.0.1";
    env.master_port = ntohs(address_.sin_port);
    return env;
  }

  // Connects until the system drops further attempts, as a firewall does.
  void fill() {
    for (int i = 0; i < 8; ++i) {
      clients_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(clients_.back(), address(), sizeof(address_));
    }
  }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }
  int fd_;
  sockaddr_in address_{};
  std::vector<int> clients_;
};

std::string refusal(const LaunchEnv& env) {
  return test::message_of<DistError>([&] { connect_store(env, 50ms); });
}

TEST(Rendezvous, IsNotAProgramThatAcceptsAndSaysNothing) {
  const Silent silent(16);
  const std::string at = "127.0.0.1:" + std::to_string(silent.rank_1().master_port);
  const std::string text = refusal(silent.rank_1());
  EXPECT_NE(text.find("something answers at " + at + ", but it is not the rendezvous of this run ("), std::string::npos)
      << text;
  EXPECT_NE(text.find("Set MASTER_PORT to a port that nothing else uses"), std::string::npos) << text;
}

TEST(Rendezvous, IsNotWaitedForWhereConnectionsAreDropped) {
  Silent silent(0);
  silent.fill();
  const std::string text = refusal(silent.rank_1());
  EXPECT_NE(text.find("no rendezvous at 127.0.0.1:"), std::string::npos) << text;
  EXPECT_NE(text.find("(no answer to an attempt to connect)"), std::string::npos) << text;
}

}  // namespace
}  // namespace titan::dist
