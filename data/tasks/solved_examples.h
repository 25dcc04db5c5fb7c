// Solved questions that stand before each question of multiple choice, for scores with examples ("few-shot").
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "config/keys/values/evaluation_tasks.h"
#include "data/tasks/choice_formats.h"
#include "data/tasks/python_random.h"

namespace titan::data {

// Chooses the examples that lm-evaluation-harness 0.4 chooses (api/samplers.py there), with its default seed.
class SolvedExamples {
 public:
  // Reads the examples of an entry, if it has any. Throws DataError, which names file, line and field, for records that
  // do not fit, and if there are too few.
  SolvedExamples(const config::TaskEntry& entry, const ChoiceFormat& format);

  // Returns the text before a question, which is `record` read by the format; "" without examples. Draws anew each
  // time: call this for all questions in their order. Throws DataError if too few examples fit the question.
  std::string before(const ChoiceItem& item, const JsonRecord& record);

 private:
  struct Example {
    std::string text;    // question and answer
    std::string object;  // its record, if a question may be among the examples; else ""
  };

  // Return indices in the question's group. `object`: the question's record, or "".
  std::vector<std::size_t> first(const ChoiceItem& item, const std::string& object);
  std::vector<std::size_t> drawn(const ChoiceItem& item, const std::string& object);
  std::vector<std::size_t> others_than(const ChoiceItem& item, const std::string& object);
  [[noreturn]] void fail(const ChoiceItem& item, std::size_t needed, std::size_t found) const;

  std::size_t count_;  // before each question
  ChooseExamples choose_;
  bool leaves_out_question_ = false;
  std::string path_;
  std::map<std::string, std::vector<Example>> groups_;  // by ChoiceItem::group
  PythonRandom random_;
};

}  // namespace titan::data
