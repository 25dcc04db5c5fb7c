// Assigns trials to disjoint parts of this machine, or to a launcher's template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

// Resources for one trial.
struct Slot {
  std::vector<int> cores;         // core numbers; empty: the launcher decides
  std::vector<std::string> gpus;  // as CUDA_VISIBLE_DEVICES names them

  bool operator==(const Slot&) const = default;
};

struct Machine {
  std::vector<int> cores;
  std::vector<std::string> gpus;
};

// Returns the cores that this process may run on, and the GPUs of CUDA_VISIBLE_DEVICES or else of the machine.
Machine find_machine();

// Returns as many slots as fit, at most spec.max_parallel. With a launcher: max_parallel empty
// slots. Throws ConfigError if max_parallel slots do not fit, or not even one.
std::vector<Slot> make_slots(const SweepSpec& spec, const Machine& machine);

// Values that a launcher template may name in braces.
struct LaunchValues {
  std::int64_t ranks = 1;
  std::int64_t cores = 1;
  std::int64_t gpus = 0;
  std::string name;    // of the trial
  std::string folder;  // of the trial
};

// Returns the words of a launcher's template, split like in a shell ('...', "...", \), with
// {ranks}, {cores}, {gpus}, {name} and {folder} replaced. The program's own words replace
// {command}, or come last. Throws ConfigError for an unknown name or an open quote.
std::vector<std::string> fill_launcher(const std::string& launcher, const LaunchValues& values,
                                       const std::vector<std::string>& command);

}  // namespace titan::sweep
