#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::dist {

// A Gloo communicator over TCP. Collective over `size` ranks that share `store`. `local_only` binds to the loopback
// interface; otherwise GLOO_SOCKET_IFNAME names the interface, or the host's name decides.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout, bool local_only);

}  // namespace titan::dist
