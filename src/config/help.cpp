// --help, whole or of one table or key.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/fields.h"
#include "config/modes.h"
#include "config/print.h"
#include "config/renamed.h"

namespace titan::config {
namespace {

constexpr const char* kUsage =
    "Usage: titan-train --config FILE [--table.key VALUE | --table.key=VALUE ...]\n"
    "       titan-train COMMAND [--help]\n"
    "Several ranks: titan-train --nproc N ..., torchrun --no-python --nproc-per-node N titan-train ..., mpirun, or "
    "srun.\n";

constexpr const char* kKeys =
    "Keys of the TOML file, each also a flag and a variable: --training.steps 100, TITAN_TRAINING__STEPS=100. The\n"
    "command line wins over the environment, that over the file, that over the files of its include = "
    "[\"base.toml\"].\n"
    "'-' and '_' are alike in flags; a boolean is --checkpoint.enable or --checkpoint.no-enable; lists are comma\n"
    "separated; None unsets an optional key; the last of several flags wins.\n";

std::string table_of(const Field& field) { return field.key.substr(0, field.key.rfind('.')); }

std::string status_note(const Status& status) {
  switch (status.support) {
    case Support::kSupported:
      return {};
    case Support::kNoEffect:
      return "; changes nothing here: " + status.reason;
    case Support::kDormant:
      return "; not in use yet: " + status.reason;
    case Support::kNotBuilt:
      return "; only the default so far: " + status.reason;
  }
  return {};
}

std::string key_help(const Field& field) {
  const std::string rule = describe_rule(field.rule);
  return "  --" + field.key + " (" + describe_kind(field) + (rule.empty() ? "" : ", " + rule) + "; default " +
         to_toml_value(default_value(field)) + ")\n      " + field.doc + status_note(field.status) + "\n";
}

std::string table_help(const TableDoc& table) {
  std::string out = "\n[" + table.name + "] " + table.doc + "\n";
  for (const Field& field : fields())
    if (table_of(field) == table.name) out += key_help(field);
  return out;
}

std::string mode_help(const Mode& mode) {
  std::string name(mode.name);
  std::replace(name.begin(), name.end(), '_', '-');
  const std::string choices =
      mode.choices.empty() || mode.value_may_be_left_out ? "" : ": " + join(split(mode.choices, ','), " or ");
  const std::string value = mode.value.empty() ? ""
                                               : " (" + std::string(mode.value) + choices +
                                                     (mode.value_may_be_left_out ? "; optional" : "") + ")";
  return "  --" + name + value + "\n      " + std::string(mode.doc) + "\n";
}

std::string command_help(const Subcommand& command) {
  std::string name(command.name);
  name.resize(std::max<std::size_t>(name.size(), 11), ' ');
  return "  " + name + std::string(command.doc) + "\n";
}

}  // namespace

std::string help_text() {
  std::string out = std::string(kUsage) + "\nCommands:\n";
  for (const Subcommand& command : subcommands()) out += command_help(command);
  out += "\nFlags:\n";
  for (const Mode& mode : modes()) out += mode_help(mode);
  out += std::string("\n") + kKeys;
  for (const TableDoc& table : table_docs()) out += table_help(table);
  return out;
}

std::string help_text(const std::string& topic) {
  std::string name = topic;
  while (name.starts_with("-")) name.erase(0, 1);
  if (name.starts_with("[") && name.ends_with("]")) name = name.substr(1, name.size() - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  if (const Field* field = find_field(name)) return key_help(*field);
  std::string out;
  for (const TableDoc& table : table_docs())
    if (table.name == name || table.name.starts_with(name + ".")) out += table_help(table);
  if (!out.empty()) return out.substr(1);
  StringList names = field_names();
  for (const TableDoc& table : table_docs()) names.push_back(table.name);
  const std::string begin = "command line: error: --help " + topic + ": there is no such table or key; ";
  if (const auto hint = renamed_hint(name)) throw ConfigError(begin + *hint);
  const auto near = nearest_name(name, names);
  StringList tables;
  for (const TableDoc& table : table_docs()) tables.push_back(table.name);
  throw ConfigError(begin + (near ? "did you mean --help " + *near + "?" : "the tables are " + join(tables, ", ")));
}

}  // namespace titan::config
