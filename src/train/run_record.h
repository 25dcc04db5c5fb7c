// What a run was: the part of a checkpoint that tells whether another run goes on with the same thing.
#pragma once

#include <string>

#include "base/value.h"
#include "config/job_config.h"
#include "contract/data_facts.h"

namespace titan::train {

class RunRecord {
 public:
  // `tokenizer` tells one tokenizer from another, `data` the data; `config` must outlive this.
  RunRecord(const config::JobConfig& config, std::string tokenizer, DataFacts data = {})
      : config_(config), tokenizer_(std::move(tokenizer)), data_(std::move(data)) {}

  // {"config": {key: value as TOML writes it}, "tokenizer": fingerprint, "files", "held_out_files", "held_out_path": the data,
  // where known}
  Value value() const;

  // Logs what has changed since `saved` was written. Throws CheckpointError for changes after which the run would not
  // be the same one: of model, tokenizer, and data or seed (unless checkpoint.exclude_from_loading names the data),
  // where checkpoint.allow_changed does not name the key.
  void check(const Value& saved) const;

 private:
  const config::JobConfig& config_;
  std::string tokenizer_;
  DataFacts data_;
};

}  // namespace titan::train
