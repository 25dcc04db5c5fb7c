#include "data/tasks/open_task.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/sources/jsonl_source.h"
#include "data/sources/text_source.h"
#include "data/tasks/choice_formats.h"
#include "data/tasks/json_records.h"
#include "data/tasks/scored_texts.h"
#include "data/tasks/solved_examples.h"

namespace titan::data {
namespace {

// A question, as far as it is needed to judge the answer. Its texts follow those of the question before it.
struct Judged {
  std::int64_t gold = 0;
  std::vector<double> characters;  // of each choice, without the blank before it
};

// Returns the index of the largest value, the first of several.
std::int64_t index_of_largest(std::span<const double> values) {
  return std::ranges::max_element(values) - values.begin();
}

// Returns the share of right answers, with its standard error: the deviation of a sample over the root of its size.
Score share(const std::string& name, std::int64_t right, std::int64_t all) {
  const auto count = static_cast<double>(all), mean = static_cast<double>(right) / count;
  Score score{.name = name, .value = mean};
  if (all > 1) score.error = std::sqrt(mean * (1 - mean) / (count - 1));
  return score;
}

// acc takes the likeliest choice; acc_norm that whose log-likelihood per character is largest.
std::vector<Score> judge(const std::vector<Judged>& items, std::span<const double> log_likelihoods) {
  std::int64_t right = 0, right_norm = 0;
  std::size_t at = 0;
  for (const Judged& item : items) {
    const auto sums = log_likelihoods.subspan(at, item.characters.size());
    std::vector<double> per_character;
    for (std::size_t i = 0; i < sums.size(); ++i) per_character.push_back(sums[i] / item.characters[i]);
    right += index_of_largest(sums) == item.gold ? 1 : 0;
    right_norm += index_of_largest(per_character) == item.gold ? 1 : 0;
    at += sums.size();
  }
  const auto count = static_cast<std::int64_t>(items.size());
  return {share("acc", right, count), share("acc_norm", right_norm, count)};
}

EvaluationTask open_choices(const config::TaskEntry& entry, const ChoiceFormat& format, const TextScoring& scoring,
                            std::int64_t limit) {
  EvaluationTask task;
  task.name = entry.name;
  std::vector<Judged> items;
  SolvedExamples examples(entry, format);
  for_each_record(
      entry.path,
      [&](const JsonRecord& record) {
        const ChoiceItem item = format.read(record);
        const std::string context = item.description + examples.before(item, record) + item.context;
        Judged judged{.gold = item.gold, .characters = {}};
        for (const std::string& choice : item.choices) {
          bool is_cut = false;
          task.texts.push_back(scoring.after_context(item.place, context, " " + choice, is_cut));
          task.num_cut += is_cut ? 1 : 0;
          judged.characters.push_back(static_cast<double>(jinja::count_characters(choice)));
        }
        items.push_back(std::move(judged));
      },
      limit);
  task.num_items = static_cast<std::int64_t>(items.size());
  task.scores = [items = std::move(items)](std::span<const double> sums) { return judge(items, sums); };
  return task;
}

EvaluationTask open_texts(const config::TaskEntry& entry, const TextScoring& scoring, std::int64_t limit) {
  const auto source = entry.kind == "text" ? open_text_files(entry.path) : open_jsonl_files(entry.path, entry.field);
  EvaluationTask task;
  task.name = entry.name;
  double words = 0, bytes = 0;
  for (task.num_items = 0; task.num_items < std::min(source->num_documents(), limit); ++task.num_items) {
    const std::string text = source->document(task.num_items);
    for (ScoredText& window : scoring.windows(entry.path, text)) task.texts.push_back(std::move(window));
    words += static_cast<double>(count_words(text));
    bytes += static_cast<double>(text.size());
  }
  if (task.texts.empty()) throw DataError("no text in " + entry.path + ": all its documents are empty");
  task.scores = [words, bytes](std::span<const double> log_likelihoods) {
    double sum = 0;
    for (const double each : log_likelihoods) sum += each;
    return std::vector<Score>{{.name = "word_perplexity", .value = std::exp(-sum / words)},
                              {.name = "byte_perplexity", .value = std::exp(-sum / bytes)},
                              {.name = "bits_per_byte", .value = -sum / bytes / std::log(2.0)}};
  };
  return task;
}

}  // namespace

EvaluationTask open_task(const config::TaskEntry& entry, const Tokenizer& tokenizer, std::int64_t max_length,
                         std::optional<std::int64_t> limit) {
  // ChooseExamples are as in lm-evaluation-harness, whose HellaSwag leaves out a question that could not be there.
  static const std::map<std::string, ChoiceFormat> kFormats = {
      {"hellaswag", {read_hellaswag, ChooseExamples::kDrawOthers}},
      {"arc", {read_arc, ChooseExamples::kDraw}},
      {"mmlu", {read_mmlu, ChooseExamples::kFirst}},
      {"choice", {read_choice, ChooseExamples::kDraw}}};
  const TextScoring scoring(tokenizer, max_length);
  const std::int64_t most = limit.value_or(std::numeric_limits<std::int64_t>::max());
  const auto format = kFormats.find(entry.kind);
  return format == kFormats.end() ? open_texts(entry, scoring, most)
                                  : open_choices(entry, format->second, scoring, most);
}

}  // namespace titan::data
