// Where trials run: parts of this machine that do not overlap, or what a launcher's template says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

// Room for one trial.
struct Slot {
  std::vector<int> cores;         // by number; empty: wherever the launcher puts it
  std::vector<std::string> gpus;  // as CUDA_VISIBLE_DEVICES names them

  bool operator==(const Slot&) const = default;
};

struct Machine {
  std::vector<int> cores;
  std::vector<std::string> gpus;
};

// The cores that this process may run on, and the GPUs of CUDA_VISIBLE_DEVICES, or all of the machine.
Machine find_machine();

// As many slots as fit, at most spec.max_parallel. With a launcher max_parallel empty ones. Throws ConfigError when
// max_parallel do not fit, or not even one.
std::vector<Slot> make_slots(const SweepSpec& spec, const Machine& machine);

// What a template may name in braces.
struct LaunchValues {
  std::int64_t ranks = 1;
  std::int64_t cores = 1;
  std::int64_t gpus = 0;
  std::string name;    // of the trial
  std::string folder;  // of the trial
};

// The words of a launcher's template, as a shell splits them ('...', "...", \), with {ranks}, {cores}, {gpus}, {name}
// and {folder} replaced. The program's own words take the place of {command}, or come last. Throws ConfigError for an
// unknown name or an open quote.
std::vector<std::string> fill_launcher(const std::string& launcher, const LaunchValues& values,
                                       const std::vector<std::string>& command);

}  // namespace titan::sweep
