#include "config/command_line/completion.h"

#include "base/text.h"
#include "config/command_line/help.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

CompletedFlag completed(const Field& field) {
  CompletedFlag out{.flag = "--" + field.key, .doc = field.doc, .kind = describe_kind(field), .values = {}};
  out.values = field.rule.choices.empty() ? usual_values(field.key) : field.rule.choices;
  out.is_bool = field.kind == ValueKind::kBool;
  if (out.is_bool) out.values = {"true", "false"};
  if (field.optional && !out.values.empty()) out.values.emplace_back("None");
  const std::string name = last_part_of(field);
  out.is_path = name.ends_with("_path") || name.ends_with("_folder") || name == "folder" || name == "config_file";
  return out;
}

CompletedFlag completed(const Mode& mode) {
  CompletedFlag out{
      .flag = "--" + typed_name(mode), .doc = std::string(mode.doc), .kind = std::string(mode.value), .values = {}};
  out.values = mode.choices.empty() ? usual_values(mode.name) : split(mode.choices, ',');
  out.is_path = mode.name == "config";
  out.takes_value = !mode.value.empty();
  out.value_is_inline = mode.value.starts_with("=");
  if (mode.name == "help") {
    out.values = {"all"};
    for (const TableDoc& table : table_docs()) out.values.push_back(table.name);
  }
  return out;
}

CompletedFlag completed(const CommandFlag& item) {
  CompletedFlag out{.flag = std::string(item.flag), .doc = {}, .kind = {}, .values = {}};
  out.takes_value = !item.value.empty();
  out.is_path = item.value == "path";
  if (out.takes_value && !out.is_path && item.value != "any") out.values = split(item.value, ',');
  return out;
}

}  // namespace

std::vector<CompletedFlag> run_flags() {
  std::vector<CompletedFlag> out;
  for (const Mode& mode : modes()) out.push_back(completed(mode));
  for (const Field& field : fields()) out.push_back(completed(field));
  return out;
}

std::vector<CompletedFlag> flags_of_command(std::string_view command) {
  std::vector<CompletedFlag> out;
  for (const CommandFlag& item : command_flags())
    if (item.command == command) out.push_back(completed(item));
  CompletedFlag help{.flag = "--help", .doc = {}, .kind = {}, .values = {}};
  help.takes_value = false;
  out.push_back(help);
  return out;
}

std::vector<std::string> commands_with_flags() {
  std::vector<std::string> out;
  for (const CommandFlag& item : command_flags())
    if (out.empty() || out.back() != item.command) out.emplace_back(item.command);
  return out;
}

std::string negated_flag(const std::string& flag) {
  const auto begin = flag.rfind('.') + 1;
  return flag.substr(0, begin) + "no-" + flag.substr(begin);
}

std::string completion_script(const std::string& shell) {
  if (shell == "zsh") return zsh_completion();
  return shell == "fish" ? fish_completion() : bash_completion();
}

}  // namespace titan::config
