#include "config/command_line/complete.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "config/command_line/modes.h"
#include "config/command_line/program.h"

namespace titan::config {
namespace {

using Words = std::span<const std::string>;

CompletedFlag completed(const Field& field) {
  CompletedFlag out{.flag = "--" + field.key, .doc = doc_of(field), .values = {}};
  out.values = field.rule.choices.empty() ? usual_values(field.key) : field.rule.choices;
  out.is_bool = field.kind == ValueKind::kBool;
  if (out.is_bool) out.values = {"true", "false"};
  if (field.optional && !out.values.empty()) out.values.emplace_back("None");
  const std::string name = last_part_of(field);
  out.is_path = name.ends_with("_path") || name.ends_with("_folder") || name == "folder" || name == "config_file";
  return out;
}

CompletedFlag completed(const Mode& mode) {
  CompletedFlag out{.flag = "--" + typed_name(mode), .doc = std::string(mode.doc), .values = {}};
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

std::vector<CompletedFlag> flags_of_run() {
  std::vector<CompletedFlag> out;
  for (const Mode& mode : modes()) out.push_back(completed(mode));
  out.push_back({.flag = "-c", .doc = "as --config", .values = {}, .is_path = true});
  for (const Field& field : fields()) out.push_back(completed(field));
  return out;
}

// True if `typed` is the flag of `item`; '-' and '_' are alike.
bool is_flag(const CompletedFlag& item, const std::string& typed) {
  return std::ranges::equal(item.flag, typed,
                            [](char a, char b) { return (a == '-' ? '_' : a) == (b == '-' ? '_' : b); });
}

const CompletedFlag* find_flag(const std::vector<CompletedFlag>& flags, const std::string& typed) {
  const auto found = std::ranges::find_if(flags, [&](const CompletedFlag& item) { return is_flag(item, typed); });
  return found == flags.end() ? nullptr : &*found;
}

// Returns "NAME<tab>DOC", with the doc up to its first ';'.
std::string candidate(const std::string& name, const std::string& doc) {
  return doc.empty() ? name : name + "\t" + doc.substr(0, doc.find(';'));
}

class Answer {
 public:
  // Candidates begin with `typed`; `prefix` is put before each.
  explicit Answer(std::string typed, std::string prefix = "") : typed_(std::move(typed)), prefix_(std::move(prefix)) {}

  void offer(const std::string& name, const std::string& doc = "") {
    if (name.starts_with(typed_)) lines_ += prefix_ + candidate(name, doc) + "\n";
  }
  std::string text() const { return "words\n" + lines_; }

 private:
  std::string typed_, prefix_, lines_;
};

std::string complete_value(const CompletedFlag& flag, const std::string& typed, const std::string& prefix) {
  if (flag.values.empty()) return flag.is_path ? "files\n" : "nothing\n";
  Answer answer(typed, prefix);
  for (const std::string& value : flag.values) answer.offer(value);
  return answer.text();
}

std::string complete_flags(const std::vector<CompletedFlag>& flags, const std::string& typed) {
  Answer answer(typed);
  for (const CompletedFlag& item : flags) {
    if (!item.flag.starts_with("--")) continue;
    answer.offer(item.flag, item.doc);
    if (item.is_bool) answer.offer(negated_flag(item.flag), item.doc);
  }
  return answer.text();
}

// The flag whose value is being typed, if any.
struct OpenValue {
  std::string flag;
  std::string typed;
  std::string prefix;  // put before each candidate, for fish
  bool is_inline;
};

std::optional<OpenValue> open_value(const std::string& shell, Words words) {
  const std::string& last = words.back();
  const std::size_t n = words.size();
  if (n > 1 && last == "=") return OpenValue{words[n - 2], "", "", true};
  if (n > 2 && words[n - 2] == "=") return OpenValue{words[n - 3], last, "", true};
  if (const auto at = last.find('='); last.starts_with('-') && at != std::string::npos)
    return OpenValue{last.substr(0, at), last.substr(at + 1), shell == "fish" ? last.substr(0, at + 1) : "", true};
  if (n > 1) return OpenValue{words[n - 2], last, "", false};
  return std::nullopt;
}

// Returns the answer for the value after a flag, or nullopt if no value is being typed.
std::optional<std::string> complete_after_flag(const std::string& shell, const std::vector<CompletedFlag>& flags,
                                               Words words) {
  const auto open = open_value(shell, words);
  const CompletedFlag* flag = open ? find_flag(flags, open->flag) : nullptr;
  if (!flag || !flag->takes_value) return std::nullopt;
  if (!open->is_inline && (flag->is_bool || flag->value_is_inline)) return std::nullopt;
  return complete_value(*flag, open->typed, open->prefix);
}

std::string complete_first_word(const std::string& typed) {
  Answer answer(typed);
  for (const Command& command : program().commands) answer.offer(command.name, command.doc);
  answer.offer("--config");
  return answer.text();
}

std::string complete_second_word(const Command& command, const std::string& typed) {
  Answer answer(typed);
  for (const std::string& word : command.words) answer.offer(word);
  answer.offer("--help");
  return answer.text();
}

// Returns the answer for a command; `words` follow the command's name.
std::string complete_command(const std::string& shell, const Command& command, Words words) {
  std::string second;
  if (!command.words.empty()) {
    if (words.size() == 1) return complete_second_word(command, words[0]);
    second = words[0];
    words = words.subspan(1);
    if (std::ranges::count(command.words, second) == 0) return "nothing\n";
  }
  const auto flags = command.flags(second);
  if (const auto answer = complete_after_flag(shell, flags, words)) return *answer;
  return words.back().starts_with('-') ? complete_flags(flags, words.back()) : "files\n";
}

}  // namespace

std::string negated_flag(const std::string& flag) {
  const auto begin = flag.rfind('.') + 1;
  return flag.substr(0, begin) + "no-" + flag.substr(begin);
}

std::string complete(const std::string& shell, Words words) {
  if (words.empty()) return complete_first_word("");
  if (words.size() == 1 && !words[0].starts_with('-')) return complete_first_word(words[0]);
  if (const Command* command = find_command(words[0]); command && words.size() > 1)
    return complete_command(shell, *command, words.subspan(1));
  const auto flags = flags_of_run();
  if (const auto answer = complete_after_flag(shell, flags, words)) return *answer;
  return complete_flags(flags, words.back());
}

}  // namespace titan::config
