// Saves the state of a sweep in sweep.json, replaced atomically at every change. A crash at any moment
// leaves the state before or after a change, and a sweep that is started again resumes from it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process/file_lock.h"
#include "config/keys/changes.h"
#include "lab/sweep/plan/plan.h"
#include "lab/sweep/plan/trial.h"

namespace titan::sweep {

struct Record {
  std::string name;
  Objective objective;
  std::vector<std::string> keys;    // keys that trials differ in
  std::vector<std::int64_t> rungs;  // empty without successive halving
  std::int64_t reduction_factor = 0;
  config::FlatConfig config;                    // of the first trial; includes what all trials share
  std::map<std::string, std::string> held_out;  // Plan::held_out
  double started = 0;                           // Unix time of the first start
  std::vector<Trial> trials;
};

// Returns a record whose trials are all pending.
Record new_record(const SweepSpec& spec, const Plan& plan, double unix_time);

void save_record(const std::filesystem::path& folder, const Record& record);

// Returns nullopt if the folder has no sweep.json. Throws DataError if it is damaged.
std::optional<Record> load_record(const std::filesystem::path& folder);

// Merges what `saved` knows of the trials of `fresh`, which may have additional ones: trials are matched
// by their values, wherever new ones are in between. The trials of `saved` come first, also in `plan`,
// with their names and numbers; new ones follow. If training.steps was raised, finished trials continue,
// to a further rung of successive halving or to the new end. Throws ConfigError naming the differences
// if the two are not the same sweep: values that are gone, another objective, other rungs, another job.
void take_on(const Record& saved, Record& fresh, Plan& plan, const std::filesystem::path& folder);

// Keeps a second driver out of the folder while this lives. Throws ConfigError if another process holds it.
class SweepLock : public FileLock {
 public:
  explicit SweepLock(const std::filesystem::path& folder);
};

}  // namespace titan::sweep
