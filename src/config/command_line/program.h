// Describes the parts of the program that src/config does not know: models, devices and commands. Used by --help,
// completion, docs/config.md and the checks of a configuration.
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

// A flag and the values that a shell offers for it.
struct CompletedFlag {
  std::string flag;  // "--training.steps"
  std::string doc;
  std::vector<std::string> values;
  bool is_bool = false;  // a key with a negation; its value may only follow '='
  bool is_path = false;
  bool takes_value = true;
  bool value_is_inline = false;  // optional, and may only follow '='
};

// A command, `titan-train NAME ...`. It parses its arguments itself.
struct Command {
  std::string name;
  std::string doc;
  std::vector<std::string> words;  // its second words ("train", "encode", "decode"); empty if it has none
  // Returns the flags of the command, or of its second word `word`.
  std::function<std::vector<CompletedFlag>(std::string_view word)> flags;
};

struct Program {
  std::vector<Command> commands;  // in the order of --help
  // Suggested values of a key or flag that takes others too ("model.name", "device"), by its name.
  std::map<std::string, std::vector<std::string>, std::less<>> usual_values;
  // Completes a configuration that describes its model by a folder (model.from). `given`: the keys that were given.
  // Returns the keys that it set, and appends faults and warnings. Empty: nothing is completed.
  std::function<std::vector<std::string>(JobConfig& config, const Origins& given, std::vector<Fault>& errors,
                                         std::vector<std::string>& warnings)>
      complete_model;
  // Appends the faults of the keys of [model], and of the degrees of parallelism for them. Empty: nothing is checked.
  std::function<void(const JobConfig& config, std::vector<Fault>& errors)> check_model;
  // Appends what keeps the whole model of [model], with its flavor's sizes, from being spread over ranks. Called for
  // runs, if check_model and complete_model find nothing wrong. Empty: nothing is checked.
  std::function<void(const JobConfig& config, std::vector<Fault>& errors)> check_plan;
};

// Sets the description. Call once, before anything is parsed, while the process has one thread.
void set_program(Program program);
const Program& program();

// Returns the command of that name, or null.
const Command* find_command(std::string_view name);
std::vector<std::string> command_names();

// Returns the usual values of a key or a flag; empty if it has none.
std::vector<std::string> usual_values(std::string_view name);

// Returns the doc of a key. If the text of fields.cpp ends in ':', the usual values of the key are appended.
std::string doc_of(const Field& field);

}  // namespace titan::config
