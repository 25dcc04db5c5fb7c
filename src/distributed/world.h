// This process in its job: device, store, the group of all ranks, and all other groups.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "distributed/process_group.h"

namespace titan::dist {

struct FailureBoard;
class FailureWatch;

class World {
 public:
  // Collective over all ranks of the job. `device_type` is CPU or CUDA (whose module must be loaded); on CUDA the local
  // rank picks the device. A job of one rank opens no socket. Throws DistError.
  World(const LaunchEnv& env, c10::DeviceType device_type, std::chrono::milliseconds init_timeout);
  // Makes one rank of a fake job of `world_size` ranks: groups and meshes can be made, but nothing can be sent.
  static std::unique_ptr<World> fake(int world_size, int rank = 0);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return static_cast<int>(env_.rank); }
  int size() const { return static_cast<int>(env_.world_size); }
  const LaunchEnv& env() const { return env_; }
  c10::Device device() const { return device_; }
  ProcessGroup& group() const { return *group_; }
  // Returns the number of groups that have a communicator on an accelerator, or in a fake job would have one.
  int num_communicators() const;

  // Returns the group of the given global ranks (ascending, including this rank); the same ranks give the same group.
  // Collective over those ranks. Connects hosts at once, but takes no memory of a device before
  // ProcessGroup::connect_accelerator().
  std::shared_ptr<ProcessGroup> make_group(const std::string& name, const std::vector<int>& ranks);

  // Makes a second group of all ranks, for host tensors, whose collectives may run beside those of every other group.
  // It keeps the timeout that it was made with. Collective; use each name once.
  ProcessGroup& own_group(const std::string& name);

  // Sets the timeout of all following collectives, except in own groups.
  void set_timeout(std::chrono::milliseconds timeout);

  // Reports to the other ranks why this one ends; they end too, within a second. If this rank serves the store, it
  // waits until they have read the reason. From here on only the caller ends this process. Returns true if another
  // rank has reported the same reason and the caller need not print it. Waits for that rank to end if it is on this
  // machine: a launcher ends all ranks as soon as the first has ended, even one about to print the reason. If it has
  // not ended within kFailurePatience, returns false, and the caller must print the reason too. Not collective, never
  // throws.
  bool report_failure(const std::string& reason) noexcept;
  // Ends this process (exit code 3), in which a collective failed with `symptom`. Prints one line that names the rank
  // to blame if it can be found. Runs no destructors: other threads may wait for a rank that is gone.
  [[noreturn]] void stop(const std::string& symptom) noexcept;

  // Call at the end of a successful run. Collective: a rank must not end the store while others still poll it.
  void shutdown();

 private:
  friend void stop_this_rank(const std::string& symptom) noexcept;
  friend void fail_this_rank(const std::string& reason) noexcept;
  World(int fake_world_size, int fake_rank);
  // stop() for a thread other than the training thread. Returns if the store is gone.
  void stop_apart(const std::string& symptom) noexcept;
  // Ends this process (exit code 1) for a reason of its own, on a thread other than the training thread.
  [[noreturn]] void fail_apart(const std::string& reason) noexcept;
  void watch_failures();
  bool are_on_one_machine(const std::vector<int>& ranks) const;
  c10::intrusive_ptr<c10d::Backend> make_cpu_backend(const std::string& prefix, const std::vector<int>& ranks);
  c10::intrusive_ptr<c10d::Backend> make_accelerator_backend(const std::string& prefix, const std::vector<int>& ranks);
  // Calls `make`, and tells of its failure as the failure to connect the ranks of a group.
  c10::intrusive_ptr<c10d::Backend> connect(const std::string& name, std::size_t num_ranks,
                                            const ProcessGroup::MakeBackend& make) const;

  LaunchEnv env_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;  // null in a job of one rank
  std::shared_ptr<ProcessGroup> group_;
  std::map<std::vector<int>, std::shared_ptr<ProcessGroup>> groups_;
  std::vector<std::shared_ptr<ProcessGroup>> own_groups_;
  std::unique_ptr<FailureBoard> board_;  // the training thread's; null in a job of one rank
  std::unique_ptr<FailureWatch> watch_;
};

// Does what World::stop() does, for threads of a device's library (NCCL's watchdog), which cannot throw to a caller.
// Returns if this process has no world of several ranks.
void stop_this_rank(const std::string& symptom) noexcept;

// Ends the process with exit code 1 on the same threads, if this rank alone is the cause: reports `reason` to the
// other ranks and prints it. Returns if this process has no world of several ranks.
void fail_this_rank(const std::string& reason) noexcept;

}  // namespace titan::dist
