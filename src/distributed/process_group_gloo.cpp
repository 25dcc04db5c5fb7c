#include "distributed/process_group_gloo.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "distributed/network_interfaces.h"

namespace titan::dist {
namespace {

// A message, whose wait() ends at a time limit.
class LimitedWork final : public c10d::Work {
 public:
  LimitedWork(c10::intrusive_ptr<c10d::Work> work, std::chrono::milliseconds timeout)
      : work_(std::move(work)), timeout_(timeout) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  bool wait(std::chrono::milliseconds timeout) override {
    return work_->wait(timeout == kNoTimeout ? timeout_ : timeout);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::chrono::milliseconds timeout_;
};

// Applies setTimeout() to messages too: Gloo's own waits for them keep the limit with which it connected.
class GlooBackend final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return c10::make_intrusive<LimitedWork>(ProcessGroupGloo::send(tensors, to, tag), getBackendOptions()->timeout);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return c10::make_intrusive<LimitedWork>(ProcessGroupGloo::recv(tensors, from, tag), getBackendOptions()->timeout);
  }
};

}  // namespace

void check_gloo_interface_variable() {
  const auto name = get_env("GLOO_SOCKET_IFNAME");
  const auto present = interfaces();
  const bool is_unknown = present.empty();  // the system does not list them; Gloo finds out
  if (!name || is_unknown || std::ranges::find(present, *name, &Interface::name) != present.end()) return;
  throw ConfigError("environment: GLOO_SOCKET_IFNAME=" + *name +
                    ": expected one interface of this machine that has an address, of " + text_of(present) +
                    "; set it to the one that the other machines reach, or unset it");
}

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout, bool local_only) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (local_only) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  return c10::make_intrusive<GlooBackend>(store, rank, size, options);
}

}  // namespace titan::dist
