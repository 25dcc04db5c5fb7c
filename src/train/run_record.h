// Record of a run in its checkpoints, to check whether a start continues the same run.
#pragma once

#include <utility>

#include "base/value.h"
#include "config/job_config.h"
#include "contract/data_facts.h"
#include "facts/tokenizer_facts.h"

namespace titan::train {

class RunRecord {
 public:
  // `data`: facts that identify the data. `config` must outlive this.
  RunRecord(const config::JobConfig& config, TokenizerFacts tokenizer, DataFacts data = {})
      : config_(config), tokenizer_(std::move(tokenizer)), data_(std::move(data)) {}

  // Returns {"config": {key: value as TOML writes it}, "tokenizer": fingerprint, "chat_template",
  // "chat_special_tokens", "files", "held_out_files", "held_out_path"}. The two about chats are there only if the run
  // has a template, the last three, about the data, only if known.
  Value value() const;

  // Logs the changes since `saved` was written. Throws CheckpointError for changes that make it another run (model,
  // tokenizer, and data, chat template or seed unless checkpoint.exclude_from_loading names the data), if
  // checkpoint.allow_changed does not name the key.
  void check(const Value& saved) const;

 private:
  const config::JobConfig& config_;
  TokenizerFacts tokenizer_;
  DataFacts data_;
};

}  // namespace titan::train
