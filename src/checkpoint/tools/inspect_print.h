// An inspection as text for people and as JSON for programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/tools/inspect.h"
#include "checkpoint/tools/inspect_run.h"
#include "checkpoint/tools/verify.h"

namespace titan::checkpoint {

// Keys whose names match: a pattern with *, ? or [ as the shell has them, anything else as a part of the name.
std::vector<KeyInfo> matching_keys(const std::vector<KeyInfo>& keys, const std::string& pattern);

struct PrintOptions {
  std::string pattern;  // see matching_keys(): these keys, one by one
  bool all = false;     // every key and file
};

// What the folder around a checkpoint says of it; "" where it says nothing.
struct Surroundings {
  std::string model;  // "llama3 debugmodel"
  std::string mesh;   // "dp_shard 2 x tp 2"
  std::string loss;   // see loss_text()
};

// First what a person asks for, then the model's keys. Keys that differ in one number alone ("layers.3.") and are alike
// otherwise share a line, unless `options` asks for some or all.
std::string inspection_text(const Inspection& inspection, const PrintOptions& options, const Surroundings& around = {});

// Of the folder of a run's steps; `rows` may be empty.
std::string steps_text(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<LoggedStep>& rows);
std::string run_text(const RunInfo& run);

// All of them, but of one file with many the first few and their number.
std::string faults_text(const std::vector<Fault>& faults);

// `faults`: of a verification, or null. One JSON value and a newline.
std::string inspection_json(const Inspection& inspection, const std::string& pattern, const std::vector<Fault>* faults);
std::string steps_json(const std::filesystem::path& folder, const std::vector<StepInfo>& steps,
                       const std::vector<Fault>* faults);
// That of its steps, with the run's own state under "run".
std::string run_json(const RunInfo& run, const std::vector<Fault>* faults);

}  // namespace titan::checkpoint
