// Prints docs/config.md from the tables that parsing and --help use.
#include "base/text.h"
#include "config/command_line/help.h"
#include "config/command_line/modes.h"
#include "config/command_line/program.h"
#include "config/command_line/variables.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

constexpr const char* kIntroduction = R"md(# Configuration

<!-- Made by `titan-train --print-docs > docs/config.md`. A test compares; do not edit by hand. -->

A run is described by one TOML file. Names, nesting and defaults are those of TorchTitan 0.2.2, whose files load here; what is
not in TorchTitan says so. A key that this program does not carry out is refused by name when it is set to something that would
change the run, with the reason and what to use instead.

## Where values come from

The last one wins:

1. the default;
2. files named by `include = ["base.toml", "other.toml"]` at the top of the file, above its first table; paths are relative to
   the including file, later ones win over earlier ones, and included files may include further ones;
3. the file itself, `--config FILE` (`-`: standard input, whose includes start at the current directory);
4. the environment: `TITAN_TRAINING__STEPS=100`, `TITAN_TRAINING__DATALOADER__NUM_WORKERS=2` (two underscores for a dot; an empty
   variable counts as not set; a variable of an unknown key is an error);
5. the command line: `--training.steps 100` or `--training.steps=100`; `-` and `_` are alike; a boolean is `--checkpoint.enable`,
   `--checkpoint.no-enable` or `--checkpoint.enable=true` (True, 1, False and 0 will do); lists are comma separated; `None` unsets an optional key; the last of
   several flags wins.

`--print-config` prints the result as TOML, `--print-config=origins` also where each value came from, `--print-config=changed`
what differs from the defaults. Every run writes the result to `<job.dump_folder>/config.toml`; running that file repeats the run.

A wrong configuration ends the program before anything is allocated or started, with exit code 2 and all mistakes at once.
`--help TABLE` and `--help TABLE.KEY` print what is below, `--help WORD` looks for a word in it.
`eval "$(titan-train --completion bash)"` completes commands, flags, values
and files (zsh the same; fish: `titan-train --completion fish | source`).

)md";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
    out += c;
  }
  return out;
}

std::string kind_name(const Field& field) {
  switch (field.kind) {
    case ValueKind::kBool:
      return "boolean";
    case ValueKind::kInt:
      return "integer";
    case ValueKind::kFloat:
      return "number";
    case ValueKind::kString:
      return "string";
    case ValueKind::kStringList:
      return "list of strings";
    case ValueKind::kStringLists:
      return "list of lists of strings";
  }
  return {};
}

std::string status_text(const Status& status) {
  switch (status.support) {
    case Support::kSupported:
      return "supported";
    case Support::kNoEffect:
      return "no effect: " + escaped(status.reason);
    case Support::kDormant:
      return "unused: " + escaped(status.reason);
    case Support::kNotBuilt:
      return "default only: " + escaped(status.reason);
  }
  return {};
}

std::string row(const Field& field) {
  return "| `" + last_part_of(field) + "` | " + kind_name(field) + (field.optional ? " or None" : "") + " | `" +
         to_toml_value(default_value(field)) + "` | " + escaped(describe_rule(field.rule)) + " | " +
         escaped(doc_of(field)) + " | " + status_text(field.status) + " |\n";
}

std::string flags() {
  std::string out = "## Other flags\n\n| flag | value | what it does |\n|---|---|---|\n";
  for (const Mode& mode : modes()) {
    out +=
        "| `--" + typed_name(mode) + "` | " + std::string(mode.value) + " | " + escaped(std::string(mode.doc)) + " |\n";
  }
  out += "\n## Commands\n\n| `titan-train` ... | what it does |\n|---|---|\n";
  for (const Command& command : program().commands)
    out += "| `" + command.name + "` | " + escaped(command.doc) + " |\n";
  return out + "\n";
}

std::string variable_rows(bool for_developers) {
  std::string out = "\n| variable | value | what it does |\n|---|---|---|\n";
  for (const Variable& variable : variables())
    if (variable.for_developers == for_developers)
      out += "| `" + std::string(variable.name) + "` | " + std::string(variable.value) + " | " +
             escaped(std::string(variable.doc)) + " |\n";
  return out;
}

std::string environment() {
  return "## Variables of the environment\n\nBeside those of keys, `TITAN_SECTION__KEY`, there are the following. A "
         "variable "
         "`TITAN_...` that is neither gets a warning\nwith the nearest name, since nothing reads it.\n" +
         variable_rows(false) + "\nOf scripts and tests, and between processes of the program:\n" +
         variable_rows(true) + "\n";
}

}  // namespace

std::string docs_text() {
  std::string out = kIntroduction + flags() + environment() + "## Keys\n";
  for (const TableDoc& table : table_docs()) {
    out += "\n### [" + table.name + "]\n\n" + escaped(table.doc) +
           ".\n\n| key | type | default | rule | what it does | status |\n|---|---|---|---|---|---|\n";
    for (const Field& field : fields())
      if (table_of(field) == table.name) out += row(field);
  }
  return out;
}

}  // namespace titan::config
