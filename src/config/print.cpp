#include "config/print.h"

#include "config/fields.h"

namespace titan::config {
namespace {

std::string table_of(const Field& field) { return field.key.substr(0, field.key.rfind('.')); }
std::string name_of(const Field& field) { return field.key.substr(field.key.rfind('.') + 1); }

std::string toml_line(const Field& field, const FieldValue& value) {
  if (!std::holds_alternative<None>(value)) return name_of(field) + " = " + to_toml_value(value) + "\n";
  if (std::holds_alternative<None>(default_value(field))) return "# " + name_of(field) + " is not set\n";
  return name_of(field) + " = \"None\"\n";
}

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

// The flags of CommandLine that are no keys; the rest of --help follows from the table of fields.
constexpr const char* kUsage =
    "Usage: titan-train --config FILE [--section.key VALUE | --section.key=VALUE ...]\n"
    "Several ranks: torchrun --no-python --nproc-per-node N titan-train ..., or mpirun, or srun.\n"
    "\n"
    "Tokenizers: titan-train tokenizer --help\n"
    "Checkpoints: titan-train inspect --help, titan-train convert --help\n"
    "\n"
    "  --config (a TOML file; default none)\n"
    "      what to train and how; flags win over it, it wins over defaults\n"
    "  --dry-run\n"
    "      print parameters and bytes a rank without allocating, and exit\n"
    "  --world-size (an integer, at least 1; default the launcher's)\n"
    "      ranks to pretend with --dry-run\n"
    "  --nproc (an integer, at least 1; default 1)\n"
    "      ranks to start on this machine without a launcher\n"
    "  --print-config\n"
    "      print the resolved configuration as TOML and exit\n"
    "  --version\n"
    "      print the version and exit\n"
    "  --help, -h\n"
    "      print this and exit\n"
    "\n"
    "Keys of the TOML file, each also a flag. '-' and '_' are alike in names; a boolean is --checkpoint.enable or\n"
    "--checkpoint.no-enable; lists are comma separated; None unsets an optional key; the last of several flags wins.\n";

}  // namespace

std::string to_toml(const JobConfig& config) {
  std::string out, table;
  for (const Field& field : fields()) {
    if (table_of(field) != table) {
      table = table_of(field);
      out += (out.empty() ? "[" : "\n[") + table + "]\n";
    }
    out += toml_line(field, field.get(config));
  }
  return out;
}

std::string help_text() {
  std::string out = kUsage;
  std::string table;
  for (const Field& field : fields()) {
    if (table_of(field) != table) {
      table = table_of(field);
      out += "\n[" + table + "]\n";
    }
    const std::string rule = describe_rule(field.rule);
    out += "  --" + field.key + " (" + describe_kind(field) + (rule.empty() ? "" : ", " + rule) + "; default " +
           to_toml_value(default_value(field)) + ")\n      " + field.doc + status_note(field.status) + "\n";
  }
  return out;
}

}  // namespace titan::config
