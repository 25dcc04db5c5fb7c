// Describes the parts of the program that src/config does not know: models, devices and commands. --help, completion,
// docs/config.md and the checks of a configuration ask it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/fields.h"
#include "config/keys/source.h"

namespace titan::config {

// A flag, and what a shell offers after it.
struct CompletedFlag {
  std::string flag;  // "--training.steps"
  std::string doc;
  std::vector<std::string> values;
  bool is_bool = false;  // a key with a negation, whose value follows '=' only
  bool is_path = false;
  bool takes_value = true;
  bool value_is_inline = false;  // follows '=' only, and may be left out
};

// `titan-train NAME ...`; the command itself parses what follows.
struct Command {
  std::string name;
  std::string doc;
  std::vector<std::string> words;  // its second words ("train", "encode", "decode"); empty if it has none
  // Returns the flags of the command, or of its second word `word`.
  std::function<std::vector<CompletedFlag>(std::string_view word)> flags;
};

struct Program {
  std::vector<Command> commands;  // in the order of --help
  // Values that are usual for a key or a flag but not the only ones ("model.name", "device"), by its name.
  std::map<std::string, std::vector<std::string>, std::less<>> usual_values;
  // Appends what is wrong with [model], and with the degrees of parallelism for it. Empty: nothing is checked.
  std::function<void(const JobConfig& config, std::vector<Fault>& errors)> check_model;
};

// Sets the description once, before anything is parsed, from a process with one thread.
void set_program(Program program);
const Program& program();

// Returns the command of that name, or null.
const Command* find_command(std::string_view name);
std::vector<std::string> command_names();

// Returns the usual values of a key or a flag; empty if it has none.
std::vector<std::string> usual_values(std::string_view name);

// Returns what a key is for. A text of fields.cpp that ends in ':' goes on with the usual values of its key.
std::string doc_of(const Field& field);

}  // namespace titan::config
