#include "base/env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace titan {
namespace {

// Port range for srun jobs: above the services' ports, overlapping Linux's ephemeral range (from 32768).
constexpr std::uint64_t kFirstPort = 20000;
constexpr std::uint64_t kNumPorts = 40000;

std::optional<std::int64_t> to_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Variables {
 public:
  explicit Variables(const EnvGetter& get) : get_(get) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = get_(name);
    return value && !value->empty() ? value : std::nullopt;
  }

  bool has(const std::string& name) const { return text(name).has_value(); }

  std::optional<std::int64_t> number(const std::string& name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = to_int(*value);
    if (!parsed || *parsed < 0)
      throw ConfigError("environment: " + name + "=" + *value + ": expected an integer, at least 0");
    return parsed;
  }

  // Like number(), but throws if the variable is not set; `because` says why it is needed.
  std::int64_t needed(const std::string& name, const std::string& because) const {
    if (const auto value = number(name)) return *value;
    throw ConfigError("environment: " + name + " is not set, although " + because +
                      "; set it, or start the ranks with torchrun, mpirun or srun");
  }

  int port(const std::string& name) const {
    const auto value = text(name);
    const auto parsed = value ? to_int(*value) : std::nullopt;
    if (!parsed || *parsed < 1 || *parsed > 65535)
      throw ConfigError("environment: " + name + "=" + value.value_or("") + ": expected a port, 1 to 65535");
    return static_cast<int>(*parsed);
  }

 private:
  const EnvGetter& get_;
};

struct RankNames {
  Launcher launcher;
  std::string rank, size, local_rank, local_size;
};

const RankNames kOpenMpi = {Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
const RankNames kMpich = {Launcher::kMpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
const RankNames kTorchrun = {Launcher::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

void check_ranks(const LaunchEnv& out, const RankNames& names) {
  const auto check = [](const std::string& rank_name, std::int64_t rank, const std::string& size_name,
                        std::int64_t size) {
    if (rank >= size)
      throw ConfigError("environment: " + rank_name + "=" + std::to_string(rank) + " is not less than " + size_name +
                        "=" + std::to_string(size) + "; ranks count from 0");
  };
  if (out.world_size > kLargestWorld)
    throw ConfigError("environment: " + names.size + "=" + std::to_string(out.world_size) + ": expected at most " +
                      std::to_string(kLargestWorld) + " ranks");
  check(names.rank, out.rank, names.size, out.world_size);
  check(names.local_rank, out.local_rank, names.local_size.empty() ? "the ranks of this machine" : names.local_size,
        out.local_world_size);
}

// Without torchelastic, RANK may be left over in the shell while mpirun's variables describe this process.
void check_no_contradiction(const Variables& env) {
  if (env.has("TORCHELASTIC_RUN_ID")) return;
  for (const RankNames* other : {&kOpenMpi, &kMpich}) {
    for (const auto& [mine, theirs] :
         {std::pair(kTorchrun.rank, other->rank), std::pair(kTorchrun.size, other->size)}) {
      const auto a = env.number(mine), b = env.number(theirs);
      if (a && b && *a != *b)
        throw ConfigError("environment: " + mine + "=" + std::to_string(*a) + " contradicts " + theirs + "=" +
                          std::to_string(*b) + "; unset the one that is a leftover of another launch");
    }
  }
}

LaunchEnv from_torchrun(const Variables& env) {
  check_no_contradiction(env);
  LaunchEnv out;
  out.launcher = Launcher::kTorchrun;
  const std::string because = env.has("RANK") ? "RANK is" : "WORLD_SIZE is";
  out.rank = env.needed("RANK", because);
  out.world_size = env.needed("WORLD_SIZE", because);
  out.local_rank = env.number("LOCAL_RANK").value_or(out.rank);
  out.local_world_size = env.number("LOCAL_WORLD_SIZE").value_or(out.world_size);
  check_ranks(out, kTorchrun);
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!env.has(name))
      throw ConfigError(std::string("environment: ") + name + " is not set, although " + because +
                        "; set it to where rank 0 listens, or start the ranks with torchrun");
  }
  out.master_addr = *env.text("MASTER_ADDR");
  out.master_port = env.port("MASTER_PORT");
  if (out.rank == 0) out.listen_fd = static_cast<int>(env.number("TITAN_LISTEN_FD").value_or(-1));
  out.use_agent_store = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  out.restart_count = env.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  out.job_id = env.text("TORCHELASTIC_RUN_ID").value_or("none");
  // The run id "none" is torchrun's default and not unique; the port tells runs on one machine apart.
  if (out.job_id == "none") out.job_id = out.master_addr + "-" + std::to_string(out.master_port);
  return out;
}

// Returns an id that differs between mpiruns on this machine and is identical on all ranks of one.
std::string mpi_job_id(const Variables& env) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_KVSNAME", "PMI_PORT"})
    if (const auto value = env.text(name)) return *value;
  // All ranks of one mpirun on one machine are children of the same process, unless a wrapper is in between.
  return "ppid" + std::to_string(getppid());
}

LaunchEnv from_mpi(const Variables& env, const RankNames& names) {
  LaunchEnv out;
  out.launcher = names.launcher;
  out.rank = env.needed(names.rank, "mpirun's other variables are");
  out.world_size = env.needed(names.size, names.rank + " is");
  const bool knows_machine = env.has(names.local_rank) && env.has(names.local_size);
  out.local_rank = env.number(names.local_rank).value_or(out.rank);
  out.local_world_size = env.number(names.local_size).value_or(out.world_size);
  check_ranks(out, names);
  out.job_id = mpi_job_id(env);
  if (env.has("MASTER_ADDR")) {
    out.master_addr = *env.text("MASTER_ADDR");
    if (!env.has("MASTER_PORT"))
      throw ConfigError(
          "environment: MASTER_PORT is not set, although MASTER_ADDR is; add -x MASTER_PORT=29500 to mpirun");
    out.master_port = env.port("MASTER_PORT");
    return out;
  }
  if (out.world_size > 1 && (!knows_machine || out.local_world_size != out.world_size)) {
    throw ConfigError("environment: mpirun started " + std::to_string(out.world_size) + " ranks, " +
                      (knows_machine ? std::to_string(out.local_world_size) + " of them on this machine"
                                     : "and " + names.local_size + " does not say how many on this machine") +
                      ", and no variable says where rank 0 listens; use mpirun -x MASTER_ADDR=<host of rank 0> -x "
                      "MASTER_PORT=29500 ...");
  }
  out.rendezvous_key = "titan-" + std::to_string(getuid()) + "-" + out.job_id;
  for (char& c : out.rendezvous_key)
    if (c == '/') c = '_';  // it becomes a file name
  return out;
}

// Returns the number of ranks on the node with index `node`, from "4" or "4(x2),3".
std::int64_t tasks_on_node(const std::string& text, std::int64_t node) {
  std::int64_t first = 0;
  for (const std::string& part : split(text, ',')) {
    const auto open = part.find("(x");
    const auto tasks = to_int(std::string_view(part).substr(0, open));
    const auto times = open == std::string::npos
                           ? std::optional<std::int64_t>(1)
                           : to_int(std::string_view(part).substr(open + 2, part.size() - open - 3));
    if (!tasks || !times || *tasks < 1) break;
    first += *times;
    if (node < first) return *tasks;
  }
  throw ConfigError("environment: SLURM_STEP_TASKS_PER_NODE=" + text + " does not say how many ranks run on node " +
                    std::to_string(node));
}

LaunchEnv from_slurm(const Variables& env) {
  LaunchEnv out;
  out.launcher = Launcher::kSlurm;
  const std::string size_name = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  out.rank = env.needed("SLURM_PROCID", "SLURM_STEP_ID is");
  out.world_size = env.needed(size_name, "SLURM_STEP_ID is");
  out.local_rank = env.needed("SLURM_LOCALID", "SLURM_STEP_ID is");
  const auto per_node = env.text("SLURM_STEP_TASKS_PER_NODE");
  out.local_world_size = per_node ? tasks_on_node(*per_node, env.number("SLURM_NODEID").value_or(0)) : out.world_size;
  check_ranks(out, {Launcher::kSlurm, "SLURM_PROCID", size_name, "SLURM_LOCALID", ""});
  const std::int64_t job = env.needed("SLURM_JOB_ID", "SLURM_STEP_ID is");
  const std::int64_t step = env.needed("SLURM_STEP_ID", "SLURM_JOB_ID is");
  out.job_id = std::to_string(job) + "." + std::to_string(step);
  out.restart_count = env.number("SLURM_RESTART_COUNT").value_or(0);
  if (const auto addr = env.text("MASTER_ADDR")) {
    out.master_addr = *addr;
  } else {
    const auto nodes =
        env.has("SLURM_STEP_NODELIST") ? env.text("SLURM_STEP_NODELIST") : env.text("SLURM_JOB_NODELIST");
    if (!nodes)
      throw ConfigError(
          "environment: SLURM_STEP_NODELIST is not set, although SLURM_STEP_ID is; set MASTER_ADDR to the host of rank "
          "0");
    out.master_addr = expand_node_list(*nodes).front();
  }
  // Different steps of one job, and consecutive jobs, get ports far apart.
  const std::uint64_t mixed = static_cast<std::uint64_t>(job) * 7919 + static_cast<std::uint64_t>(step) * 104729;
  out.master_port = env.has("MASTER_PORT") ? env.port("MASTER_PORT") : static_cast<int>(kFirstPort + mixed % kNumPorts);
  return out;
}

// An sbatch or salloc shell has Slurm's variables too, but only srun starts ranks.
bool is_srun(const Variables& env) {
  if (!env.has("SLURM_JOB_ID") || !env.has("SLURM_STEP_ID") || !env.has("SLURM_PROCID")) return false;
  if (!to_int(*env.text("SLURM_STEP_ID"))) return false;  // "batch", "interactive", "extern"
  // An sbatch shell reports step ids near 2^32 for itself.
  if (*to_int(*env.text("SLURM_STEP_ID")) >= 0xfffffff0LL) return false;
  const auto size = env.has("SLURM_STEP_NUM_TASKS") ? env.number("SLURM_STEP_NUM_TASKS") : env.number("SLURM_NTASKS");
  return size != 1;
}

[[noreturn]] void bad_list(std::string_view list, const std::string& why) {
  throw ConfigError("environment: Slurm's node list \"" + std::string(list) + "\": " + why +
                    "; set MASTER_ADDR to the host of rank 0");
}

// Expands "003-007" or "9" to its numbers, zero-padded to the width of the first.
std::vector<std::string> expand_range(std::string_view list, std::string_view range) {
  const auto dash = range.find('-');
  const auto first_text = range.substr(0, dash);
  const auto last_text = dash == std::string_view::npos ? first_text : range.substr(dash + 1);
  const auto first = to_int(first_text), last = to_int(last_text);
  if (!first || !last || *first < 0 || *last < *first || *last - *first > 1'000'000)
    bad_list(list, "\"" + std::string(range) + "\" is not a range of numbers");
  std::vector<std::string> out;
  for (std::int64_t i = *first; i <= *last; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < first_text.size()) digits.insert(0, first_text.size() - digits.size(), '0');
    out.push_back(std::move(digits));
  }
  return out;
}

// Expands one host pattern, "rack[1-2]n[0-1]", to all combinations of its brackets.
std::vector<std::string> expand_pattern(std::string_view list, std::string_view pattern) {
  std::vector<std::string> hosts = {""};
  while (!pattern.empty()) {
    const auto open = pattern.find('[');
    for (auto& host : hosts) host += pattern.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = pattern.find(']', open);
    if (close == std::string_view::npos) bad_list(list, "a '[' is not closed");
    std::vector<std::string> longer;
    for (const auto& host : hosts) {
      for (const std::string& range : split(pattern.substr(open + 1, close - open - 1), ','))
        for (const auto& number : expand_range(list, range)) longer.push_back(host + number);
    }
    hosts = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
  if (hosts.front().empty()) bad_list(list, "a host has no name");
  return hosts;
}

}  // namespace

const char* to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::kAlone:
      return "alone";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kOpenMpi:
      return "openmpi";
    case Launcher::kMpich:
      return "mpich";
    case Launcher::kSlurm:
      return "slurm";
  }
  return "unknown";
}

std::optional<std::string> get_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

namespace {

std::optional<LaunchEnv> launch_by_others(const Variables& env) {
  if (env.has("RANK")) return std::nullopt;
  if (env.has(kOpenMpi.rank) || env.has(kOpenMpi.size)) return from_mpi(env, kOpenMpi);
  // srun also sets PMI_RANK if its PMI plug-in is on.
  if (is_srun(env)) return from_slurm(env);
  if (env.has(kMpich.rank) || env.has(kMpich.size)) return from_mpi(env, kMpich);
  return std::nullopt;
}

}  // namespace

LaunchEnv detect_launch(const EnvGetter& get) {
  const Variables env(get);
  const auto other = launch_by_others(env);
  // Job scripts export WORLD_SIZE for programs that need it, and leave RANK to the launcher.
  if (env.has("RANK") || (env.has("WORLD_SIZE") && !other)) return from_torchrun(env);
  if (!other) return {};
  if (const auto size = env.number("WORLD_SIZE"); size && *size != other->world_size)
    throw ConfigError("environment: WORLD_SIZE=" + std::to_string(*size) + " contradicts the " +
                      std::to_string(other->world_size) + " ranks of " + to_string(other->launcher) +
                      "; unset it, or start as many ranks");
  return *other;
}

std::vector<std::string> expand_node_list(std::string_view node_list) {
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= node_list.size(); ++i) {
    if (i < node_list.size() && node_list[i] == '[') ++depth;
    if (i < node_list.size() && node_list[i] == ']') --depth;
    if (i < node_list.size() && (node_list[i] != ',' || depth > 0)) continue;
    for (auto& host : expand_pattern(node_list, node_list.substr(begin, i - begin))) hosts.push_back(std::move(host));
    begin = i + 1;
  }
  return hosts;
}

}  // namespace titan
