// Entries of evaluation.tasks: what a model is scored on. Opens no file: data/tasks/ does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// One entry: "KIND PATH" or "NAME=KIND PATH", for example "arc_easy=arc /data/arc/easy-test.jsonl". After the path of
// multiple choice may follow " fewshot=PATH" or " fewshot=N:PATH".
struct TaskEntry {
  std::string name;              // of its scores, unique in a run: "arc_easy"; without NAME= that of the kind
  std::string kind;              // lower case, one of task_kinds()
  std::string field;             // of kind jsonl: the field that holds the text, from "jsonl:FIELD", or "text"; else ""
  std::string path;              // a file or a folder
  std::string examples = "";     // with solved questions, a file or a folder; "" if there are none
  std::int64_t num_fewshot = 0;  // solved questions before each question; above 0 if there are examples
};

// Names in messages: keys of the configuration, or flags of a command.
struct TaskKeys {
  std::string tasks = "evaluation.tasks", num_fewshot = "evaluation.num_fewshot";
};

// Returns the kinds: hellaswag, arc, mmlu, choice, text, jsonl.
std::vector<std::string> task_kinds();

// Parses all entries. `num_fewshot`: solved questions before each question, for entries that do not say how many.
// Throws ConfigError, with the names of its keys, for the first entry that is wrong, has the name of another, or has
// examples and no number of them or a number and no examples; also for a number that no entry uses.
std::vector<TaskEntry> parse_task_entries(const std::vector<std::string>& texts, std::int64_t num_fewshot,
                                          const TaskKeys& keys = {});

// Finds errors in the entries.
std::vector<Fault> find_wrong_tasks(const JobConfig& config);

}  // namespace titan::config
