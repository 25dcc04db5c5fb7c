#include "config/command_line/variables.h"

#include <algorithm>

#include "base/text.h"
#include "config/command_line/modes.h"
#include "config/keys/datasets.h"
#include "config/keys/fields.h"
#include "config/keys/suggest.h"

namespace titan::config {
namespace {

// One line per variable reads as a table.
// clang-format off
constexpr Variable kVariables[] = {
    {"TITAN_DATA_CACHE", "a folder", "", "where compressed data files are kept decompressed; else $XDG_CACHE_HOME/titan-train, else ~/.cache/titan-train", false},
    {"TITAN_SHARED_MEMORY", "0 or 1", "0,1", "0: ranks of one host exchange CPU tensors through Gloo's sockets, not through memory", false},
    {"TITAN_HOST_ARENA", "0 or 1", "0,1", "0: memory of CPU tensors comes from the C library, not from the program's arena", false},
    {"TITAN_DEVICE_COMM", "nccl or gloo", "nccl,gloo", "gloo: collectives of CUDA tensors go through the host, and several ranks may share a device; slow, for tests", false},
    {"TITAN_LOG_SAMPLES", "a file", "", "every rank R writes the samples that it trains on to FILE.rankR", false},
    {"TITAN_TRACE_COLLECTIVES", "a file", "", "rank 0 writes every collective that it starts", false},
    {"TITAN_PYTHON", "an interpreter", "", "an installed program takes torch from this Python, not from its own environment or python3", false},
    {"TITAN_TORCH", "a folder", "", "torch's folder (site-packages/torch), which an installed program then does not look for", false},
    {"TITAN_TRAIN", "a program", "", "what deploy/titan.sbatch starts; else titan-train on the PATH", false},
    {"TITAN_RESTARTED", "a process id", "", "set by an installed program that starts itself anew so that the loader finds torch", true},
    {"TITAN_LISTEN_FD", "a number", "", "set by --nproc for rank 0: the socket where ranks meet", true},
    {"TITAN_LIBRARIES", "sources or system", "", "where scripts/setup.sh takes libraries from; else the system, or sources if they were built", true},
    {"TITAN_DEBIAN_MIRROR", "an address", "", "where scripts/dependencies.py takes sources from; else the mirror of this machine's apt", true},
    {"TITAN_SKIP_SETUP", "anything", "", "scripts/test.sh tests what is built, without setup and build", true},
    {"TITAN_TEST_DIR", "a folder", "", "what scripts/test.sh and scripts/flake.sh test; else build/release", true},
    {"TITAN_EXPECTED_SKIPS", "a file", "", "the tests that scripts/test.sh lets skip; else tests/expected_skips.txt", true},
    {"TITAN_TIME_SCALE", "a number", "", "multiplies the time that tests wait before they call a process hung; else 5", true},
    {"TITAN_PEER_PYTHON", "an interpreter", "", "a Python with torchtitan and transformers, for tests and benchmarks that compare with them", true},
    {"TITAN_PEER_ARGS", "JSON", "", "sizes of the model that tests/reference/torchtitan_cpu.py trains", true},
    {"TITAN_KILLS", "a number", "", "how often the test checkpoint_kill_loop kills a rank", true},
    {"TITAN_KILLS_SEED", "a number", "", "seed of the moments at which it does", true},
    {"TITAN_FAULT", "rules", "", "which system calls tests/support/fault.cpp lets fail", true},
    {"TITAN_FAULT_POINT", "a fault", "", "what happens at a collective of one rank; src/distributed/flight/fault_point.h", true},
    {"TITAN_TEST_RANK", "a number", "", "set by tests for the ranks that they start", true},
    {"TITAN_TEST_RUN", "a mark", "", "set by scripts/test.sh, to find what its tests leave running", true},
    {"TITAN_FLAKE_STOPS", "programs, tests", "", "what scripts/flake.sh stops at random; else programs", true},
    {"TITAN_FLAKE_RUN", "a mark", "", "the same of scripts/flake.sh", true},
    {"TITAN_INTEGRATION_JOB", "a mark", "", "the same of the integration tests, for each job", true},
};
// clang-format on

constexpr std::size_t kPrefixLength = std::string_view("TITAN_").size();

std::string stem_of(std::string_view variable) { return std::string(variable.substr(kPrefixLength)); }

// Compares names without the common prefix TITAN_, which would make any two short names similar.
std::string hint(const std::string& name) {
  const std::string word = lower_case(stem_of(name));
  if (word == "config" || word == "config_file") return "; use --config FILE";
  for (const Mode& mode : modes())
    if (mode.name == word) return "; use the flag --" + typed_name(mode);
  std::vector<std::string> names, stems;
  for (const std::string& key : likely_keys(word))
    if (lower_case(key.substr(key.rfind('.') + 1)) == word) names.push_back(variable_of(key));
  if (!names.empty()) return did_you_mean(names);
  for (const std::string& key : field_names()) names.push_back(variable_of(key));
  for (const Variable& variable : variables())
    if (!variable.for_developers) names.emplace_back(variable.name);
  for (const std::string& known : names) stems.push_back(stem_of(known));
  const auto near = nearest_name(stem_of(name), stems);
  return near ? "; did you mean TITAN_" + *near + "?" : "; docs/config.md lists those that there are";
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

void check_variables(const Environment& environment, std::vector<std::string>& errors,
                     std::vector<std::string>& warnings) {
  Environment sorted = environment;
  std::ranges::sort(sorted);
  for (const auto& [name, value] : sorted) {
    if (names_a_key(name)) continue;
    const auto* known = std::ranges::find(kVariables, name, &Variable::name);
    if (known == std::end(kVariables)) {
      warnings.push_back("environment: " + name + " is set, and nothing reads it" + hint(name));
      continue;
    }
    const auto choices = known->choices.empty() ? std::vector<std::string>{} : split(known->choices, ',');
    if (!choices.empty() && std::ranges::count(choices, value) == 0)
      errors.push_back("environment: error: " + name + ": expected " + std::string(known->value) + "; found \"" +
                       value + "\"");
  }
}

}  // namespace titan::config
