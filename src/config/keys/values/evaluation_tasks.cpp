#include "config/keys/values/evaluation_tasks.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/datasets.h"

namespace titan::config {
namespace {

constexpr const char* kExample = "\"hellaswag /data/hellaswag_val.jsonl\" or \"arc_easy=arc /data/arc_easy.jsonl\"";
constexpr std::string_view kFewshot = " fewshot=";
constexpr std::int64_t kMostExamples = 1000000;

// Names are parts of a JSON key and of a tag in TensorBoard.
bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

bool has_answers(const std::string& kind) { return kind != "text" && kind != "jsonl"; }

// Parses one entry, and what to say of it in errors.
class EntryParser {
 public:
  EntryParser(const std::string& text, const TaskKeys& keys) : text_(text), keys_(keys) {}

  TaskEntry parse(std::int64_t num_fewshot) const {
    const auto space = text_.find(' ');
    if (space == std::string::npos || space + 1 == text_.size()) fail("it has no path");
    TaskEntry entry{.name = "", .kind = text_.substr(0, space), .field = "", .path = text_.substr(space + 1)};
    read_kind(entry);
    if (entry.name.empty()) entry.name = entry.kind;
    if (entry.kind == "jsonl" && entry.field.empty()) entry.field = "text";
    read_examples(entry);
    if (has_answers(entry.kind)) settle_number(entry, num_fewshot);
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(keys_.tasks + ": expected \"KIND PATH\" or \"NAME=KIND PATH\", for example " + kExample +
                          "; found \"" + text_ + "\": " + why,
                      {keys_.tasks});
  }

  // Splits "NAME=KIND:FIELD".
  void read_kind(TaskEntry& entry) const {
    if (const auto equals = entry.kind.find('='); equals != std::string::npos) {
      entry.name = entry.kind.substr(0, equals);
      entry.kind.erase(0, equals + 1);
      if (!is_name(entry.name)) fail("a name has letters, digits, \"_\", \"-\" and \".\" only");
    }
    if (const auto colon = entry.kind.find(':'); colon != std::string::npos) {
      entry.field = entry.kind.substr(colon + 1);
      entry.kind.erase(colon);
      if (lower_case(entry.kind) != "jsonl") fail("only kind jsonl takes a field, as jsonl:FIELD");
      if (entry.field.empty()) fail("there is no field after jsonl:");
    }
    const std::string written = std::exchange(entry.kind, lower_case(entry.kind));
    const auto kinds = task_kinds();
    if (std::ranges::count(kinds, entry.kind) > 0) return;
    const auto near = nearest_name(entry.kind, kinds);
    throw ConfigError(keys_.tasks + ": unknown kind of task \"" + written + "\" in \"" + text_ + "\"." +
                          (near ? " Did you mean \"" + *near + "\"?" : "") + " Known: " + join(kinds, ", ") + ".",
                      {keys_.tasks});
  }

  // Splits "PATH fewshot=N:PATH".
  void read_examples(TaskEntry& entry) const {
    const auto at = entry.path.rfind(kFewshot);
    if (at == std::string::npos) return;
    if (!has_answers(entry.kind)) fail("only multiple choice takes solved questions, and " + entry.kind + " has none");
    entry.examples = entry.path.substr(at + kFewshot.size());
    entry.path.resize(at);
    const auto digits = entry.examples.find_first_not_of("0123456789");
    if (!entry.examples.empty() && digits == std::string::npos)
      fail("there is no file behind fewshot=" + entry.examples + "; write fewshot=" + entry.examples + ":PATH");
    if (digits != std::string::npos && digits > 0 && entry.examples[digits] == ':') {
      const char* begin = entry.examples.data();
      const auto error = std::from_chars(begin, begin + digits, entry.num_fewshot).ec;
      if (error != std::errc() || entry.num_fewshot < 1 || entry.num_fewshot > kMostExamples)
        fail("expected a number from 1 to " + std::to_string(kMostExamples) + " before the \":\" of fewshot=N:PATH");
      entry.examples.erase(0, digits + 1);
    }
    if (entry.path.empty()) fail("it has no path before fewshot=");
    if (entry.examples.empty()) fail("there is no path after fewshot=");
  }

  void settle_number(TaskEntry& entry, std::int64_t num_fewshot) const {
    const std::vector<std::string> both = {keys_.tasks, keys_.num_fewshot};
    if (entry.examples.empty() && num_fewshot > 0)
      throw ConfigError(keys_.tasks + ": \"" + text_ + "\" has no file of solved questions, of which " +
                            keys_.num_fewshot + " puts " + std::to_string(num_fewshot) +
                            " before each question; add one, as in \"" + text_ + " fewshot=PATH\"",
                        both);
    if (entry.examples.empty()) return;
    if (entry.num_fewshot == 0) entry.num_fewshot = num_fewshot;
    if (entry.num_fewshot == 0)
      throw ConfigError(keys_.tasks + ": \"" + text_ + "\" does not say how many of the solved questions in " +
                            entry.examples + " come before each question; write fewshot=N:PATH, or set " +
                            keys_.num_fewshot,
                        both);
  }

  const std::string& text_;
  const TaskKeys& keys_;
};

}  // namespace

std::vector<std::string> task_kinds() { return {"hellaswag", "arc", "mmlu", "choice", "text", "jsonl"}; }

std::vector<TaskEntry> parse_task_entries(const std::vector<std::string>& texts, std::int64_t num_fewshot,
                                          const TaskKeys& keys) {
  std::vector<TaskEntry> entries;
  for (const std::string& text : texts) {
    TaskEntry entry = EntryParser(text, keys).parse(num_fewshot);
    if (std::ranges::count(entries, entry.name, &TaskEntry::name) > 0)
      throw ConfigError(keys.tasks + ": two tasks are named \"" + entry.name + "\", and \"" + text +
                            "\" is the second; give it another name, as in \"" + entry.name + "_2=" + entry.kind +
                            " PATH\"",
                        {keys.tasks});
    entries.push_back(std::move(entry));
  }
  if (num_fewshot > 0 && std::ranges::count(entries, num_fewshot, &TaskEntry::num_fewshot) == 0)
    throw ConfigError(keys.num_fewshot + " = " + std::to_string(num_fewshot) + " has no effect: " + keys.tasks +
                          " has no multiple choice that leaves the number open; " + "leave it out",
                      {keys.num_fewshot});
  return entries;
}

std::vector<Fault> find_wrong_tasks(const JobConfig& config) {
  try {
    parse_task_entries(config.evaluation.tasks, config.evaluation.num_fewshot);
  } catch (const ConfigError& error) {
    return {{error.what(), error.keys()}};
  }
  return {};
}

}  // namespace titan::config
