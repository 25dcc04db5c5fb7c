// Record of a run in its checkpoints, to check whether a start continues the same run.
#pragma once

#include <string>

#include "base/value.h"
#include "config/job_config.h"
#include "contract/data_facts.h"

namespace titan::train {

class RunRecord {
 public:
  // `tokenizer`: fingerprint that identifies the tokenizer. `data`: facts that identify the data. `config` must
  // outlive this.
  RunRecord(const config::JobConfig& config, std::string tokenizer, DataFacts data = {})
      : config_(config), tokenizer_(std::move(tokenizer)), data_(std::move(data)) {}

  // Returns {"config": {key: value as TOML writes it}, "tokenizer": fingerprint, "files", "held_out_files",
  // "held_out_path"}. The last three, about the data, are there only if known.
  Value value() const;

  // Logs the changes since `saved` was written. Throws CheckpointError for changes that make it another run (model,
  // tokenizer, and data or seed unless checkpoint.exclude_from_loading names the data), if checkpoint.allow_changed
  // does not name the key.
  void check(const Value& saved) const;

 private:
  const config::JobConfig& config_;
  std::string tokenizer_;
  DataFacts data_;
};

}  // namespace titan::train
