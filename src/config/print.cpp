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
  std::string out =
      "Usage: titan-train --config FILE [--section.key VALUE | --section.key=VALUE ...]\n"
      "\n"
      "  --config FILE     TOML file to read; flags win over it, it wins over defaults\n"
      "  --dry-run         build everything with fake ranks, train nothing\n"
      "  --world-size N    ranks to pretend with --dry-run\n"
      "  --nproc N         start N ranks on this machine\n"
      "  --print-config    print the resolved configuration as TOML and exit\n"
      "  --version         print the version and exit\n"
      "  --help            print this and exit\n"
      "\n"
      "Keys of the TOML file, each also a flag. '-' and '_' are alike in names; a boolean is --checkpoint.enable or\n"
      "--checkpoint.no-enable; lists are comma separated; None unsets an optional key.\n";
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
