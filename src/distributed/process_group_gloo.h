#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::dist {

// Throws ConfigError, with the interfaces that there are, if GLOO_SOCKET_IFNAME names none of this machine's.
void check_gloo_interface_variable();

// Makes a Gloo communicator over TCP, on the interface that GLOO_SOCKET_IFNAME names; if unset, on the loopback
// interface for `local_only`, otherwise on that of the host's name. Collective over `size` ranks that share `store`.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout, bool local_only);

}  // namespace titan::dist
