// Formats an inspection as text for people and as JSON for programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/tools/inspect.h"
#include "checkpoint/tools/inspect_run.h"
#include "checkpoint/tools/verify.h"

namespace titan::checkpoint {

// Returns the keys whose names match: a pattern with *, ? or [ as in the shell; anything else matches as a part of the
// name.
std::vector<KeyInfo> matching_keys(const std::vector<KeyInfo>& keys, const std::string& pattern);

struct PrintOptions {
  std::string pattern;  // see matching_keys(): prints these keys, one by one
  bool all = false;     // every key and file
};

// Facts that the folder around a checkpoint gives; empty if it does not.
struct Surroundings {
  std::string model;      // "llama3 debugmodel"
  std::string mesh = {};  // "dp_shard 2 x tp 2"
  std::string loss = {};  // see loss_text()
  // Second name of a tied parameter: "output.weight".
  std::string tied_name = {};
};

// Returns a summary, then the model's keys, or all keys with `options.all`. Keys that differ only in one number
// ("layers.3.") share a line; those that match `options.pattern` do not.
std::string inspection_text(const Inspection& inspection, const PrintOptions& options, const Surroundings& around = {});

// Describes `folder`, which holds the steps of a run; `rows` may be empty.
std::string steps_text(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<LoggedStep>& rows);
std::string run_text(const RunInfo& run);

// Lists all faults; for a file with many, only the first few and the number of the others.
std::string faults_text(const std::vector<Fault>& faults);

// Returns one JSON value and a newline. `faults`: result of a verification, or null.
std::string inspection_json(const Inspection& inspection, const std::string& pattern, const std::vector<Fault>* faults);
std::string steps_json(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<Fault>* faults);
// Returns the JSON of the run's steps, with the run's own state under "run".
std::string run_json(const RunInfo& run, const std::vector<Fault>* faults);

}  // namespace titan::checkpoint
