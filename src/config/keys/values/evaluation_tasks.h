// Entries of evaluation.tasks: what a model is scored on. Opens no file: data/tasks/ does.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// One entry: "KIND PATH" or "NAME=KIND PATH", for example "arc_easy=arc /data/arc/easy-test.jsonl".
struct TaskEntry {
  std::string name;   // of its scores, unique in a run: "arc_easy"; without NAME= that of the kind
  std::string kind;   // lower case, one of task_kinds()
  std::string field;  // of kind jsonl: the field that holds the text, from "jsonl:FIELD", or "text"; else ""
  std::string path;   // a file or a folder
};

// Returns the kinds: hellaswag, arc, mmlu, choice, text, jsonl.
std::vector<std::string> task_kinds();

// Parses an entry. `key` begins the message of an error: "evaluation.tasks", or a flag. Throws ConfigError naming the
// entry, with `key` as its key.
TaskEntry parse_task_entry(const std::string& text, const std::string& key = "evaluation.tasks");

// Parses all entries. Throws ConfigError for the first that is wrong, or has the name of another.
std::vector<TaskEntry> parse_task_entries(const std::vector<std::string>& texts,
                                          const std::string& key = "evaluation.tasks");

// Finds errors in the entries.
std::vector<Fault> find_wrong_tasks(const JobConfig& config);

}  // namespace titan::config
