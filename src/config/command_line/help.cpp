// Prints --help: the index, everything, one table or key, or the keys about a word.
#include "config/command_line/help.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"
#include "config/command_line/modes.h"
#include "config/command_line/program.h"
#include "config/keys/fields.h"
#include "config/keys/renamed.h"

namespace titan::config {
namespace {

const std::string kUsage =
    "Usage: titan-train --config FILE [--table.key VALUE | --table.key=VALUE ...]\n"
    "       titan-train COMMAND [--help]\n"
    "Several ranks: --nproc N, torchrun --no-python --nproc-per-node N titan-train ..., mpirun, or srun.\n";

constexpr const char* kKeys =
    "Keys of the TOML file, each also a flag and a variable: --training.steps 100, TITAN_TRAINING__STEPS=100. The\n"
    "command line wins over the environment, that over the file, that over the files of its include = "
    "[\"base.toml\"].\n"
    "'-' and '_' are alike in flags; a boolean is --checkpoint.enable or --checkpoint.no-enable; lists are comma\n"
    "separated; None unsets an optional key; the last of several flags wins.\n";

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
         to_toml_value(default_value(field)) + ")\n      " + doc_of(field) + status_note(field.status) + "\n";
}

std::string heading(const TableDoc& table) { return "\n[" + table.name + "] " + table.doc + "\n"; }

std::string whole_table_help(const TableDoc& table) {
  std::string out = heading(table);
  for (const Field& field : fields())
    if (table_of(field) == table.name) out += key_help(field);
  return out;
}

// Returns the help of a table. Keys without effect here are listed by name alone, unless the table has no others.
std::string table_help(const TableDoc& table) {
  std::string out;
  StringList idle;
  for (const Field& field : fields()) {
    if (table_of(field) != table.name) continue;
    if (field.status.support == Support::kSupported) {
      out += key_help(field);
    } else {
      idle.push_back(field.key.substr(table.name.size() + 1));
    }
  }
  if (out.empty()) return whole_table_help(table);
  if (!idle.empty()) out += "  Without effect here (--help KEY says why): " + join(idle, ", ") + "\n";
  return heading(table) + out;
}

std::string mode_help(const Mode& mode) {
  const std::string choices =
      mode.choices.empty() || mode.value_may_be_left_out ? "" : ": " + join(split(mode.choices, ','), " or ");
  const std::string value = mode.value.empty() ? ""
                                               : " (" + std::string(mode.value) + choices +
                                                     (mode.value_may_be_left_out ? "; optional" : "") + ")";
  return "  --" + typed_name(mode) + value + "\n      " + std::string(mode.doc) + "\n";
}

std::string command_help(const Command& command) {
  std::string name = command.name;
  name.resize(std::max<std::size_t>(name.size(), 11), ' ');
  return "  " + name + command.doc + "\n";
}

std::string commands_help() {
  std::string out = "\nCommands:\n";
  for (const Command& command : program().commands) out += command_help(command);
  return out;
}

// ------------------------------------------------------------------------------------------- the index

// Returns "  NAME   DOC", with the doc up to its first ';'.
std::string index_line(std::string name, std::string_view doc) {
  constexpr std::size_t kColumn = 26;
  name.resize(std::max(name.size() + 1, kColumn), ' ');
  return "  " + name + std::string(doc.substr(0, doc.find(';'))) + "\n";
}

std::string short_name(const Mode& mode) {
  const std::string name = "--" + typed_name(mode);
  if (mode.value.empty()) return name;
  const std::string value = !mode.choices.empty()                  ? std::string(mode.choices)
                            : mode.value.starts_with("an integer") ? "N"
                            : mode.value.ends_with("file")         ? "FILE"
                                                                   : "NAME";
  return mode.value_may_be_left_out ? name + (mode.value.starts_with("=") ? "[=" + value + "]" : " [" + value + "]")
                                    : name + " " + value;
}

// True if the index lists the table: tables nested two or more deep appear on the page of their outer table.
bool is_in_index(const TableDoc& table) {
  return std::ranges::count(table.name, '.') <= 1 && std::ranges::any_of(fields(), [&](const Field& field) {
           return table_of(field) == table.name && field.status.support == Support::kSupported;
         });
}

// ------------------------------------------------------------------------------------------- the search

// Returns lower-case words with a blank at each end: "Learning-Rate" -> " learning rate ".
std::string in_words(std::string_view text) {
  std::string out = " ";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) ? static_cast<char>(std::tolower(byte)) : ' ';
  }
  return out + " ";
}

// True if `text` has words that begin with `words`. Short words must match exactly; they would be found everywhere.
bool is_about(std::string_view text, const std::string& words) {
  constexpr std::size_t kShort = 3;
  const std::string wanted(trim(words));
  return in_words(text).find(wanted.size() <= kShort ? " " + wanted + " " : " " + wanted) != std::string::npos;
}

// Returns keys whose name matches, then keys whose doc matches.
std::vector<const Field*> keys_about(const std::string& words, bool idle) {
  std::vector<const Field*> by_name, by_text;
  for (const Field& field : fields()) {
    if ((field.status.support != Support::kSupported) != idle) continue;
    if (is_about(last_part_of(field), words)) {
      by_name.push_back(&field);
    } else if (is_about(doc_of(field), words)) {
      by_text.push_back(&field);
    }
  }
  by_name.insert(by_name.end(), by_text.begin(), by_text.end());
  return by_name;
}

// Returns the help of everything about `topic`; empty if nothing is found.
std::string search(const std::string& topic) {
  const std::string words = in_words(topic);
  if (trim(words).empty()) return {};
  std::string out;
  for (const Command& command : program().commands)
    if (is_about(command.name, words) || is_about(command.doc, words))
      out += "  titan-train " + command.name + "\n      " + command.doc + "\n";
  for (const Mode& mode : modes())
    if (is_about(mode.name, words) || is_about(mode.doc, words)) out += mode_help(mode);
  auto keys = keys_about(words, /*idle=*/false);
  if (keys.empty()) keys = keys_about(words, /*idle=*/true);
  for (const Field* field : keys) out += key_help(*field);
  return out;
}

std::string all_help() {
  std::string out = kUsage + commands_help() + "\nFlags:\n";
  for (const Mode& mode : modes()) out += mode_help(mode);
  out += std::string("\n") + kKeys;
  for (const TableDoc& table : table_docs()) out += whole_table_help(table);
  return out;
}

}  // namespace

std::string help_text() {
  std::string out = kUsage + commands_help() + "\nFlags:\n";
  for (const Mode& mode : modes())
    if (!mode.is_seldom_used) out += index_line(short_name(mode), mode.doc);
  out += "\nTables of keys:\n";
  for (const TableDoc& table : table_docs())
    if (is_in_index(table)) out += index_line("[" + table.name + "]", table.doc);
  return out +
         "\nEach key is also a flag and a variable: --training.steps 100, TITAN_TRAINING__STEPS=100. --help training "
         "lists\n"
         "a table, --help training.steps a key, --help lr keys about a word, --help all everything. Short: -c, -h, "
         "-V.\n";
}

std::string help_text(const std::string& topic) {
  if (topic == "all") return all_help();
  std::string name = topic;
  while (name.starts_with("-")) name.erase(0, 1);
  if (name.starts_with("[") && name.ends_with("]")) name = name.substr(1, name.size() - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  if (const Field* field = find_field(name)) return key_help(*field);
  std::string out;
  for (const TableDoc& table : table_docs())
    if (table.name == name || table.name.starts_with(name + ".")) out += table_help(table);
  if (!out.empty()) return out.substr(1);
  const std::string begin = "command line: error: --help " + topic + ": there is no such table or key; ";
  if (const auto hint = renamed_hint(name)) throw ConfigError(begin + *hint);
  if (const std::string found = search(name); !found.empty()) return found;
  StringList names = field_names(), tables;
  for (const TableDoc& table : table_docs()) tables.push_back(table.name);
  names.insert(names.end(), tables.begin(), tables.end());
  const auto near = nearest_name(name, names);
  throw ConfigError(begin + (near ? "did you mean --help " + *near + "?" : "the tables are " + join(tables, ", ")));
}

}  // namespace titan::config
