#include "distributed/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits/system_limits.h"
#include "base/process/rank_process.h"
#include "base/threads/start_thread.h"

namespace titan::dist {
namespace {

using std::chrono::steady_clock;
namespace fs = std::filesystem;

// A connection that is not made within this time counts as refused. SYN packets are sent again after one and three
// seconds.
constexpr auto kConnectLimit = std::chrono::milliseconds(4000);

// Connects a socket that does not block. Returns why that failed; "" if it did not.
std::string connect_within(int fd, const addrinfo& address, std::chrono::milliseconds limit) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  const auto deadline = steady_clock::now() + limit;
  pollfd polled{fd, POLLOUT, 0};
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    ready = poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return "no answer to an attempt to connect";
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

std::string try_connect(const std::string& host, int port, std::chrono::milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    return gai_strerror(error);
  std::string reason = "no address";
  for (const addrinfo* a = found; a && !reason.empty(); a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      reason = std::strerror(errno);
      freeaddrinfo(found);
      throw DistError("cannot connect to " + host + ": " + reason);
    }
    reason = fd < 0 ? std::strerror(errno) : connect_within(fd, *a, std::min(limit, kConnectLimit));
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return reason;
}

// Waits in small steps: ranks start milliseconds apart, but c10d waits a full second between attempts.
void wait_until_listening(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  std::string reason;
  while (!(reason = try_connect(host, port, timeout)).empty()) {
    if (steady_clock::now() > deadline) {
      throw DistError("no rendezvous at " + host + ":" + std::to_string(port) + " within " +
                      std::to_string(timeout.count() / 1000) + " s (" + reason +
                      "); rank 0 must run there and the port must be reachable. Check MASTER_ADDR and MASTER_PORT");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

fs::path port_file(const LaunchEnv& env) {
  return fs::temp_directory_path() / ("titan-train-" + std::to_string(getuid()) + "-" + env.rendezvous_key + ".port");
}

// The content of the port file: the port and the process that serves it.
std::string port_text(int port) { return std::to_string(port) + " " + to_text(own_process()) + "\n"; }

struct Port {
  int number = 0;  // 0 if not known yet; `reason` says why
  std::string reason;
};

// Reads the port file. An earlier job with the same key may have left it, so its writer must be alive. If that is
// unknown (a process of another container), the port must answer.
Port read_port(const fs::path& path, const std::string& host) {
  std::ifstream file(path);
  if (!file) return {0, "there is no such file"};
  int port = 0;
  std::string writer;
  if (!(file >> port) || port <= 0) return {0, "the file there holds no port"};
  std::getline(file, writer);
  const RankProcess process = rank_process_from_text(writer);
  const Life life = life_of(process);
  const std::string process_name = "process " + std::to_string(process.pid);
  if (life == Life::kEnded) return {0, "the file there is left over from " + process_name + ", which has ended"};
  if (life != Life::kUnknown) return {port, ""};
  const std::string refusal = try_connect(host, port, kConnectLimit);
  if (refusal.empty()) return {port, ""};
  return {0, "the file there names port " + std::to_string(port) + ", which does not answer: " + refusal};
}

int wait_for_port_file(const fs::path& path, const std::string& host, std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (true) {
    const Port port = read_port(path, host);
    if (port.number > 0) return port.number;
    if (steady_clock::now() > deadline) {
      throw DistError("rank 0 did not write its port to " + path.string() + " within " +
                      std::to_string(timeout.count() / 1000) + " s (" + port.reason +
                      "); set MASTER_ADDR and MASTER_PORT if the ranks do not share that folder");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

using StorePointer = c10::intrusive_ptr<c10d::TCPStore>;

// Returns null if the store's server accepts the connection and then says nothing for `options.timeout`. c10d waits for
// its greeting without a limit, so a thread of its own does, which stays behind then.
StorePointer greet_store(const std::string& host, const c10d::TCPStoreOptions& options) {
  std::packaged_task<StorePointer()> task(
      [host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  auto store = task.get_future();
  start_thread("connects to the rendezvous", std::move(task)).detach();
  // c10d's own limit comes first, with its reason, where it has one.
  const auto limit = options.timeout + std::chrono::milliseconds(500);
  return store.wait_for(limit) == std::future_status::ready ? store.get() : StorePointer();
}

std::string no_rendezvous(const std::string& at, const std::string& why) {
  return "something answers at " + at + ", but it is not the rendezvous of this run (" + why +
         "): another program, or a rank 0 that is stopped. Set MASTER_PORT to a port that nothing else uses, the same "
         "for all ranks, and check MASTER_ADDR";
}

// `listen_fd`: a server's socket that already listens; -1 to make one.
StorePointer connect_tcp(const std::string& host, int port, bool server, std::chrono::milliseconds timeout,
                         int listen_fd = -1) {
  c10d::TCPStoreOptions options;
  if (listen_fd >= 0) options.masterListenFd = listen_fd;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string at = host + ":" + std::to_string(port);
  StorePointer store;
  try {
    store = greet_store(host, options);
  } catch (const Error&) {  // no thread
    throw;
  } catch (const std::exception& error) {
    std::string reason = error.what();
    reason = with_limits(reason.substr(0, reason.find('\n')));
    if (!server) throw DistError(no_rendezvous(at, reason));
    throw DistError("cannot serve the rendezvous at " + at + ": " + reason +
                    ". Is the port taken? Choose another MASTER_PORT");
  }
  if (!store)
    throw DistError(no_rendezvous(
        at, "it accepts connections and says nothing for " + std::to_string(timeout.count() / 1000) + " s"));
  return store;
}

StorePointer connect(const LaunchEnv& env, std::chrono::milliseconds timeout) {
  const bool server = env.rank == 0 && !env.use_agent_store;
  if (env.master_port != 0) {
    if (!server) wait_until_listening(env.master_addr, env.master_port, timeout);
    return connect_tcp(env.master_addr, env.master_port, server, timeout, env.listen_fd);
  }
  const fs::path file = port_file(env);
  if (!server) return connect_tcp(env.master_addr, wait_for_port_file(file, env.master_addr, timeout), false, timeout);
  auto store = connect_tcp(env.master_addr, 0, true, timeout);
  write_file_atomically(file, port_text(store->getPort()));
  return store;
}

}  // namespace

// Each attempt has its own prefix. torchrun's agent keeps its store when it restarts the ranks, with everything they
// wrote: failure reasons, addresses of dead processes. A membership change keeps the restart count but not the number
// of ranks, so the prefix has both.
c10::intrusive_ptr<c10d::Store> connect_store(const LaunchEnv& env, std::chrono::milliseconds timeout) {
  const std::string attempt = std::to_string(env.restart_count) + "-" + std::to_string(env.world_size);
  return c10::make_intrusive<c10d::PrefixStore>("titan/attempt-" + attempt, connect(env, timeout));
}

void forget_port_file(const LaunchEnv& env) {
  std::error_code ignored;  // the file is a leftover from here on
  if (env.rank == 0 && env.master_port == 0) fs::remove(port_file(env), ignored);
}

c10::intrusive_ptr<c10d::Store> clone_store(const c10::intrusive_ptr<c10d::Store>& store) { return store->clone(); }

}  // namespace titan::dist
