#include "tests/support/run_ranks.h"

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace titan::test {
namespace {

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

void run_as_rank(const std::function<void(dist::World&)>& body) {
  at::set_num_threads(1);
  LaunchEnv env;
  env.rank = env.local_rank = std::stoi(std::getenv("TITAN_TEST_RANK"));
  env.world_size = env.local_world_size = std::stoi(std::getenv("TITAN_TEST_WORLD_SIZE"));
  env.master_addr = "127.0.0.1";
  env.master_port = std::stoi(std::getenv("TITAN_TEST_PORT"));
  dist::World world(env, c10::DeviceType::CPU, std::chrono::seconds(30));
  try {
    body(world);
  } catch (const std::exception& error) {
    world.report_failure(error.what());
    throw;
  }
  world.shutdown();
}

struct Child {
  pid_t pid;
  std::filesystem::path output;
  int status = -1;
  bool ended = false;
};

Child start_child(int rank, int num_ranks, int port, const std::string& test_name) {
  const auto output = std::filesystem::temp_directory_path() /
                      ("titan-test-" + std::to_string(getpid()) + "-" + std::to_string(rank) + ".log");
  const std::string filter = "--gtest_filter=" + test_name;
  std::vector<std::string> env = {"TITAN_TEST_RANK=" + std::to_string(rank),
                                  "TITAN_TEST_WORLD_SIZE=" + std::to_string(num_ranks),
                                  "TITAN_TEST_PORT=" + std::to_string(port)};
  std::vector<char*> envp;
  for (char** e = environ; *e; ++e) envp.push_back(*e);
  for (auto& e : env) envp.push_back(e.data());
  envp.push_back(nullptr);
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string filter_argument = filter;
  char* argv[] = {program.data(), filter_argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  Child child{0, output};
  EXPECT_EQ(posix_spawn(&child.pid, program.c_str(), &actions, nullptr, argv, envp.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

std::string take_output(const Child& child) {
  std::stringstream text;
  text << std::ifstream(child.output).rdbuf();
  std::filesystem::remove(child.output);
  return text.str();
}

}  // namespace

void on_ranks(int num_ranks, const std::function<void(dist::World&)>& body, int timeout_s) {
  if (std::getenv("TITAN_TEST_RANK")) {
    run_as_rank(body);
    return;
  }
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(info->test_suite_name()) + "." + info->name();
  const int port = free_port();
  std::vector<Child> children;
  for (int rank = 0; rank < num_ranks; ++rank) children.push_back(start_child(rank, num_ranks, port, name));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::size_t running = children.size();
  bool timed_out = false;
  while (running > 0) {
    for (auto& child : children) {
      if (!child.ended && waitpid(child.pid, &child.status, WNOHANG) == child.pid) {
        child.ended = true;
        --running;
      }
    }
    if (!timed_out && std::chrono::steady_clock::now() > deadline) {
      timed_out = true;
      for (const auto& child : children) {
        if (!child.ended) kill(child.pid, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(timed_out) << "ranks were ended after " << timeout_s << " s";
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    const std::string output = take_output(children[rank]);
    EXPECT_EQ(children[rank].status, 0) << "rank " << rank << " of " << num_ranks << ":\n" << output;
  }
}

}  // namespace titan::test
