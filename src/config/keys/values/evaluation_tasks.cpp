#include "config/keys/values/evaluation_tasks.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/keys/datasets.h"

namespace titan::config {
namespace {

constexpr const char* kExample = "\"hellaswag /data/hellaswag_val.jsonl\" or \"arc_easy=arc /data/arc_easy.jsonl\"";

// Names are parts of a JSON key and of a tag in TensorBoard.
bool is_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

std::vector<std::string> task_kinds() { return {"hellaswag", "arc", "mmlu", "choice", "text", "jsonl"}; }

TaskEntry parse_task_entry(const std::string& text, const std::string& key) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(key + ": expected \"KIND PATH\" or \"NAME=KIND PATH\", for example " + kExample + "; found \"" +
                          text + "\"" + why,
                      {key});
  };
  const auto space = text.find(' ');
  if (space == std::string::npos || space + 1 == text.size()) fail(": it has no path");
  TaskEntry entry{.name = "", .kind = text.substr(0, space), .field = "", .path = text.substr(space + 1)};
  if (const auto equals = entry.kind.find('='); equals != std::string::npos) {
    entry.name = entry.kind.substr(0, equals);
    entry.kind.erase(0, equals + 1);
    if (!is_name(entry.name)) fail(": a name has letters, digits, \"_\", \"-\" and \".\" only");
  }
  if (const auto colon = entry.kind.find(':'); colon != std::string::npos) {
    entry.field = entry.kind.substr(colon + 1);
    entry.kind.erase(colon);
    if (lower_case(entry.kind) != "jsonl") fail(": only kind jsonl takes a field, as jsonl:FIELD");
    if (entry.field.empty()) fail(": there is no field after jsonl:");
  }
  const std::string written = std::exchange(entry.kind, lower_case(entry.kind));
  if (const auto kinds = task_kinds(); std::ranges::count(kinds, entry.kind) == 0) {
    const auto near = nearest_name(entry.kind, kinds);
    throw ConfigError(key + ": unknown kind of task \"" + written + "\" in \"" + text + "\"." +
                          (near ? " Did you mean \"" + *near + "\"?" : "") + " Known: " + join(kinds, ", ") + ".",
                      {key});
  }
  if (entry.name.empty()) entry.name = entry.kind;
  if (entry.kind == "jsonl" && entry.field.empty()) entry.field = "text";
  return entry;
}

std::vector<TaskEntry> parse_task_entries(const std::vector<std::string>& texts, const std::string& key) {
  std::vector<TaskEntry> entries;
  for (const std::string& text : texts) {
    TaskEntry entry = parse_task_entry(text, key);
    if (std::ranges::count(entries, entry.name, &TaskEntry::name) > 0)
      throw ConfigError(key + ": two tasks are named \"" + entry.name + "\", and \"" + text +
                            "\" is the second; give it another name, as in \"" + entry.name + "_2=" + entry.kind +
                            " PATH\"",
                        {key});
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<Fault> find_wrong_tasks(const JobConfig& config) {
  try {
    parse_task_entries(config.evaluation.tasks);
  } catch (const ConfigError& error) {
    return {{error.what(), error.keys()}};
  }
  return {};
}

}  // namespace titan::config
