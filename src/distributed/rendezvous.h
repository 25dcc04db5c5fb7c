// The rendezvous of a job's ranks: a c10d TCPStore.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/env.h"

namespace titan::dist {

// Connects to the job's store; rank 0 serves it, unless torchrun's agent does already. Blocks until the store answers.
// With no port in the environment (mpirun on one host), rank 0 takes a free port and tells it through a file in the
// temporary folder. Throws DistError naming address, port and what to check.
c10::intrusive_ptr<c10d::Store> connect_store(const LaunchEnv& env, std::chrono::milliseconds timeout);

// Rank 0 removes the port file, if there is one. Call when every rank is connected.
void forget_port_file(const LaunchEnv& env);

// Opens a second connection to the same store for another thread (threads that block must not share a TCPStore
// client). `store` must come from connect_store.
c10::intrusive_ptr<c10d::Store> clone_store(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace titan::dist
