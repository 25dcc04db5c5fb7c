// What a run is given, checked as far as that goes before ranks meet, so that a mistake costs no rendezvous.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/command_line/command_line.h"
#include "config/job_config.h"
#include "config/keys/source.h"
#include "contract/prompts.h"
#include "contract/tokenizer_facts.h"
#include "contract/train_contract.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {

struct CheckedInput {
  config::JobConfig config;
  std::vector<std::string> warnings;
  config::Origins origins;
  TrainSpec spec;
  std::shared_ptr<const data::Tokenizer> tokenizer;  // null before load_tokenizer()
  TokenizerFacts tokenizer_facts;                    // empty before load_tokenizer()
  Prompts prompts;                                   // those of validation.prompts; empty before load_tokenizer()
};

// The configuration and the model that it describes. Reads the configuration's files and no others. Throws ConfigError
// with all that is wrong.
CheckedInput check_input(const config::CommandLine& command_line, std::int64_t world_size);

// The tokenizer and what comes from it. Throws ConfigError.
void load_tokenizer(CheckedInput& input);

// The same, and before it all files and folders that the configuration names, as far as they can be judged without
// reading data: once a machine. Throws ConfigError with all that is wrong.
void check_files(CheckedInput& input);

// Of the same what is wrong with values that were given: a plan for another machine need not have the rest yet.
std::vector<std::string> missing_files(CheckedInput& input);

// What is in the folder of the run that it must not write over. Throws ConfigError.
void check_folder(const CheckedInput& input, bool overwrite);

}  // namespace titan
