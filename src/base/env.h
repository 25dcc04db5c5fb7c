// Detects the launcher, rank and world size of this process from the variables that torchrun, mpirun and srun set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

enum class Launcher { kAlone, kTorchrun, kOpenMpi, kMpich, kSlurm };

const char* to_string(Launcher launcher);

inline constexpr std::int64_t kLargestWorld = std::int64_t{1} << 20;  // ranks of a run

struct LaunchEnv {
  Launcher launcher = Launcher::kAlone;  // kTorchrun: anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;        // among the ranks of this machine
  std::int64_t local_world_size = 1;  // ranks of this machine
  std::string master_addr = "127.0.0.1";
  int master_port = 0;             // 0: all ranks are on this machine and meet through a file named by rendezvous_key
  int listen_fd = -1;              // rank 0 of --nproc: a socket that already listens at master_port
  std::string rendezvous_key;      // identical on all ranks of this launch, and unique to it; empty if there is a port
  bool use_agent_store = false;    // torchrun's agent already serves the store at master_addr: even rank 0 is a client
  std::int64_t restart_count = 0;  // torchrun's restarts of this job so far
  std::string job_id;              // identical on all ranks; for file names. Empty when alone
};

// Returns a variable's value; nullopt if it is not set. An empty value counts as not set.
using EnvGetter = std::function<std::optional<std::string>(const std::string& name)>;

// Reads this process's real environment.
std::optional<std::string> get_env(const std::string& name);

// Throws ConfigError naming the variable when the variables are incomplete, contradict each other or are not numbers.
LaunchEnv detect_launch(const EnvGetter& get = get_env);

// Returns the hosts of a Slurm node list, in order: "gpu[01-03,7],login" -> gpu01 gpu02 gpu03 gpu7
// login. Throws ConfigError.
std::vector<std::string> expand_node_list(std::string_view node_list);

}  // namespace titan
