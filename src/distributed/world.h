// This process among its peers: device, store, and the group of all ranks, from which every other group is made.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "distributed/failure_watch.h"
#include "distributed/process_group.h"

namespace titan::dist {

class World {
 public:
  // Collective over all ranks of the job. `device_type` is CPU or CUDA (whose module must be loaded); on CUDA the local
  // rank picks the device. A job of one rank opens no socket. Throws DistError.
  World(const LaunchEnv& env, c10::DeviceType device_type, std::chrono::milliseconds init_timeout);
  // Rank 0 of a job of `world_size` ranks that does not exist: groups and meshes can be made, nothing can be sent.
  static std::unique_ptr<World> fake(int world_size);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return static_cast<int>(env_.rank); }
  int size() const { return static_cast<int>(env_.world_size); }
  const LaunchEnv& env() const { return env_; }
  c10::Device device() const { return device_; }
  ProcessGroup& group() const { return *group_; }

  // The group of the given global ranks (ascending, this rank among them). Collective over those ranks; asking for the
  // same ranks again gives the same group. Connects at once, so that the first step does not.
  std::shared_ptr<ProcessGroup> make_group(const std::string& name, const std::vector<int>& ranks);

  // A second group of all ranks, for host tensors, whose collectives may run beside those of every other group. It
  // keeps the time limit of the start. Collective; a name is used once.
  ProcessGroup& own_group(const std::string& name);

  // Time limit of all collectives from here on, but for own groups.
  void set_timeout(std::chrono::milliseconds timeout);

  // Tells the other ranks why this one ends; they end too, within a second, and this one does not end before they have
  // heard where it serves the store. From here on nothing but the caller ends this process. Returns whether another
  // rank has given the same reason, and waits for that one to end where it is of this machine: a launcher ends all
  // ranks as soon as the first has ended, also one that is about to print the reason. Where it has not ended within
  // kFailurePatience, the caller is to print it too (false). Not collective, never throws.
  bool report_failure(const std::string& reason) noexcept;
  // Ends this process (exit code 3), in which a collective failed with `symptom`, with one line that names the rank to
  // blame where that can be found out. Nothing is taken down: what other threads wait for may be the rank that is gone.
  [[noreturn]] void stop(const std::string& symptom) noexcept;

  // Collective: a rank must not take the store away while others still look at it. Call at the end of a good run.
  void shutdown();

 private:
  friend void stop_this_rank(const std::string& symptom) noexcept;
  friend void fail_this_rank(const std::string& reason) noexcept;
  explicit World(int fake_world_size);
  // stop() on another thread than the one that trains. Returns where the store is gone.
  void stop_apart(const std::string& symptom) noexcept;
  // Ends this process (exit code 1) for a reason of its own, on another thread than the one that trains.
  [[noreturn]] void fail_apart(const std::string& reason) noexcept;
  void watch_failures();
  bool are_on_one_machine(const std::vector<int>& ranks) const;
  c10::intrusive_ptr<c10d::Backend> make_cpu_backend(const std::string& prefix, const std::vector<int>& ranks);
  c10::intrusive_ptr<c10d::Backend> make_accelerator_backend(const std::string& prefix, const std::vector<int>& ranks);

  LaunchEnv env_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;  // null in a job of one rank
  std::shared_ptr<ProcessGroup> group_;
  std::map<std::vector<int>, std::shared_ptr<ProcessGroup>> groups_;
  std::vector<std::shared_ptr<ProcessGroup>> own_groups_;
  std::optional<FailureBoard> board_;  // of the thread that trains; nothing in a job of one rank
  std::unique_ptr<FailureWatch> watch_;
};

// For a thread of a device's library, which has nobody to tell that a collective failed: what World::stop() does, where
// this process has a world of several ranks; else it returns.
void stop_this_rank(const std::string& symptom) noexcept;

// For the same threads, where this rank alone is the cause: tells the other ranks `reason`, prints it and ends the process
// with exit code 1. Returns where this process has no world of several ranks.
void fail_this_rank(const std::string& reason) noexcept;

}  // namespace titan::dist
