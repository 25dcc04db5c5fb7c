// What a run is given, checked as far as that goes before ranks meet, so that a mistake costs no rendezvous. Nothing
// here is collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/train/checked_config.h"
#include "data/tokenizer/tokenizer.h"
#include "facts/prompts.h"
#include "facts/tokenizer_facts.h"

namespace titan {

// A checked configuration with what its files say: all that training needs.
struct CheckedInput : CheckedConfig {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  TokenizerFacts tokenizer_facts;
  Prompts prompts;  // those of validation.prompts
};

// Opens the tokenizer. Throws ConfigError.
CheckedInput load_tokenizer(const CheckedConfig& checked);

// The same, and before it looks at all files and folders that the configuration names, as far as they can be judged
// without reading data: once per machine is enough. Throws ConfigError with all that is wrong.
CheckedInput check_files(const CheckedConfig& checked);

// What check_files() would throw about values that were given: a plan for another machine need not have the rest yet.
std::vector<std::string> missing_files(const CheckedConfig& checked);

// Returns what the names of the data's files make doubtful, a sentence each (data/dataset_kinds.h). Throws DataError.
std::vector<std::string> doubtful_data(const config::JobConfig& config);

// What is in the folder of the run that it must not write over. Throws ConfigError.
void check_folder(const CheckedConfig& checked, bool overwrite);

}  // namespace titan
