// Questions of multiple choice, read from the formats of data sets and put into the words of lm-evaluation-harness.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tasks/json_records.h"

namespace titan::data {

// A question. A model's answer is the choice that is likeliest after the context.
struct ChoiceItem {
  std::string place;             // "file:line"
  std::string group = {};        // only examples of the same group come before it; "" if there are no groups
  std::string description = {};  // text before the examples; "" if there is none
  std::string context = {};      // text between the examples and the answer
  std::vector<std::string> choices = {};
  std::int64_t gold = 0;  // index of the right one
};

// Returns the question of a record. Throws DataError, naming file, line and field, for a record that does not fit.
using ReadChoices = ChoiceItem (*)(const JsonRecord&);

// HellaSwag: activity_label, ctx_a, ctx_b, endings, label.
ChoiceItem read_hellaswag(const JsonRecord& record);
// ARC: question, choices {text, label}, answerKey.
ChoiceItem read_arc(const JsonRecord& record);
// MMLU: subject, question, choices (four), answer.
ChoiceItem read_mmlu(const JsonRecord& record);
// This program's own: query, choices, gold.
ChoiceItem read_choice(const JsonRecord& record);

// Says which solved questions of a file come before a question.
enum class ChooseExamples {
  kFirst,      // the first ones of its group
  kDraw,       // drawn at random; without the question itself if the file is that of the questions
  kDrawOthers  // the same, but never the question itself
};

struct ChoiceFormat {
  ReadChoices read;
  ChooseExamples choose;
};

}  // namespace titan::data
