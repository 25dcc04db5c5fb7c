#include "data/tasks/choice_formats.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "data/chat/jinja/values/python_text.h"

// The texts are those of lm-evaluation-harness 0.4: tasks/hellaswag/utils.py, tasks/arc/arc_easy.yaml and
// tasks/mmlu/default/. Any other blank or letter makes other scores.
namespace titan::data {
namespace {

std::string replace_all(std::string_view text, std::string_view old, std::string_view replacement) {
  return jinja::replace(text, old, replacement, /*limit=*/-1);
}

// Removes what the pattern \[.*?\] of Python's re matches: the shortest text in brackets, within a line.
std::string without_brackets(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto open = text.find('[');
    out.append(text.substr(0, open));
    if (open == std::string_view::npos) break;
    text.remove_prefix(open);
    const auto end = text.find_first_of("]\n", 1);
    const bool is_closed = end != std::string_view::npos && text[end] == ']';
    if (!is_closed) out.push_back('[');
    text.remove_prefix(is_closed ? end + 1 : 1);
  }
  return out;
}

// Removes traces of WikiHow's pages.
std::string clean(std::string_view text) {
  const std::string stripped(jinja::strip(text));
  return replace_all(without_brackets(replace_all(stripped, " [title]", ". ")), "  ", " ");
}

// Throws DataError if the index of the right answer is not one of a choice.
ChoiceItem checked(const JsonRecord& record, ChoiceItem item, const std::string& field) {
  const auto count = static_cast<std::int64_t>(item.choices.size());
  if (count < 2) record.fail("expected at least two choices, found " + std::to_string(count));
  if (item.gold < 0 || item.gold >= count)
    record.fail("\"" + field + "\": expected the index of a choice, 0 to " + std::to_string(count - 1) + "; found " +
                std::to_string(item.gold));
  return item;
}

}  // namespace

ChoiceItem read_hellaswag(const JsonRecord& record) {
  const std::string context = record.text("ctx_a") + " " + jinja::capitalize(record.text("ctx_b"));
  ChoiceItem item{.place = record.place(), .context = clean(record.text("activity_label") + ": " + context)};
  for (const std::string& ending : record.texts("endings")) item.choices.push_back(clean(ending));
  item.gold = record.integer_or_digits("label");
  return checked(record, std::move(item), "label");
}

ChoiceItem read_arc(const JsonRecord& record) {
  const JsonRecord choices = record.object("choices");
  ChoiceItem item{.place = record.place(),
                  .context = "Question: " + record.text("question") + "\nAnswer:",
                  .choices = choices.texts("text")};
  const auto labels = choices.texts("label");
  if (labels.size() != item.choices.size())
    record.fail("\"choices\": expected as many labels as texts, found " + std::to_string(labels.size()) + " and " +
                std::to_string(item.choices.size()));
  const std::string& key = record.text("answerKey");
  const auto found = std::ranges::find(labels, key);
  if (found == labels.end())
    record.fail("\"answerKey\": expected one of the labels " + join(labels, ", ") + "; found \"" + key + "\"");
  item.gold = found - labels.begin();
  return checked(record, std::move(item), "answerKey");
}

ChoiceItem read_mmlu(const JsonRecord& record) {
  const auto answers = record.texts("choices");
  if (answers.size() != 4) record.fail("\"choices\": expected four, found " + std::to_string(answers.size()));
  ChoiceItem item{.place = record.place(), .choices = {"A", "B", "C", "D"}, .gold = record.integer("answer")};
  item.group = record.text("subject");
  item.description =
      "The following are multiple choice questions (with answers) about " + replace_all(item.group, "_", " ") + ".\n\n";
  item.context = jinja::strip(record.text("question"));
  for (std::size_t i = 0; i < answers.size(); ++i) item.context += "\n" + item.choices[i] + ". " + answers[i];
  item.context += "\nAnswer:";
  return checked(record, std::move(item), "answer");
}

ChoiceItem read_choice(const JsonRecord& record) {
  return checked(record,
                 {.place = record.place(),
                  .context = record.text("query"),
                  .choices = record.texts("choices"),
                  .gold = record.integer("gold")},
                 "gold");
}

}  // namespace titan::data
