// Checks the input of a run as far as possible before the ranks meet, so that mistakes cost no rendezvous. Nothing
// here is collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/train/checked_config.h"
#include "data/conversations/chat_packs.h"
#include "data/tokenizer/tokenizer.h"
#include "facts/prompts.h"
#include "facts/tokenizer_facts.h"

namespace titan {

// A checked configuration and the contents of its files: all that training needs.
struct CheckedInput : CheckedConfig {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  TokenizerFacts tokenizer_facts;
  Prompts prompts;  // from validation.prompts
};

// Opens the tokenizer. Throws ConfigError.
CheckedInput load_tokenizer(const CheckedConfig& checked);

// Checks all files and folders that the configuration names, as far as possible without reading data, and opens the
// tokenizer. Once per machine is enough. Throws ConfigError with all mistakes.
CheckedInput check_files(const CheckedConfig& checked);

// Returns the errors of check_files() about values that were set: a plan for another machine need not have the other
// files yet.
std::vector<std::string> missing_files(const CheckedConfig& checked);

// Returns doubts about the names of the data files, one sentence each (data/dataset_kinds.h). Throws DataError.
std::vector<std::string> doubtful_data(const config::JobConfig& config);

// Returns what the table [chat] and the tokenizer of that fingerprint say of conversations.
data::ChatDataset chat_dataset(const config::JobConfig& config, const std::string& tokenizer_fingerprint);

// Throws ConfigError if the run's folder holds results that the run must not overwrite.
void check_folder(const CheckedConfig& checked, bool overwrite);

}  // namespace titan
