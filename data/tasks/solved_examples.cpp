#include "data/tasks/solved_examples.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/sources/jsonl_source.h"

namespace titan::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kSeed = 1234;  // lm-evaluation-harness's fewshot_random_seed

// True if a file with examples is one with questions, too.
bool share_a_file(const fs::path& questions, const fs::path& examples) {
  const auto others = list_jsonl_files(examples);
  const auto is_there = [&](const fs::path& file) {
    std::error_code unknown;
    return std::ranges::any_of(others, [&](const fs::path& other) { return fs::equivalent(file, other, unknown); });
  };
  return std::ranges::any_of(list_jsonl_files(questions), is_there);
}

}  // namespace

SolvedExamples::SolvedExamples(const config::TaskEntry& entry, const ChoiceFormat& format)
    : count_(static_cast<std::size_t>(entry.num_fewshot)),
      choose_(format.choose),
      path_(entry.examples),
      random_(kSeed) {
  if (count_ == 0) return;
  leaves_out_question_ = choose_ == ChooseExamples::kDrawOthers || share_a_file(entry.path, path_);
  for_each_record(path_, [&](const JsonRecord& record) {
    const ChoiceItem item = format.read(record);
    groups_[item.group].push_back({item.context + " " + item.choices[static_cast<std::size_t>(item.gold)],
                                   leaves_out_question_ ? record.to_json() : ""});
  });
}

std::string SolvedExamples::before(const ChoiceItem& item, const JsonRecord& record) {
  if (count_ == 0) return "";
  const std::string object = leaves_out_question_ ? record.to_json() : "";
  std::vector<std::size_t> chosen = choose_ == ChooseExamples::kFirst ? first(item, object) : drawn(item, object);
  std::string text;
  for (const std::size_t index : chosen) text += groups_[item.group][index].text + "\n\n";
  return text;
}

std::vector<std::size_t> SolvedExamples::first(const ChoiceItem& item, const std::string& object) {
  std::vector<std::size_t> others = others_than(item, object);
  if (others.size() < count_) fail(item, count_, others.size());
  others.resize(count_);
  return others;
}

// Draws one more than needed where the question may be among them, as lm-evaluation-harness does.
std::vector<std::size_t> SolvedExamples::drawn(const ChoiceItem& item, const std::string& object) {
  const std::vector<Example>& all = groups_[item.group];
  const std::size_t needed = leaves_out_question_ ? count_ + 1 : count_;
  if (all.size() < needed) fail(item, needed, all.size());
  std::vector<std::size_t> out = random_.sample(all.size(), needed);
  if (leaves_out_question_) std::erase_if(out, [&](std::size_t index) { return all[index].object == object; });
  if (out.size() < count_) {  // the file has the question several times
    const std::vector<std::size_t> others = others_than(item, object);
    if (others.size() < count_) fail(item, needed, others.size() + 1);
    out.clear();
    for (const std::size_t index : random_.sample(others.size(), count_)) out.push_back(others[index]);
  }
  out.resize(count_);
  return out;
}

// Returns the examples of the question's group without those that are the question.
std::vector<std::size_t> SolvedExamples::others_than(const ChoiceItem& item, const std::string& object) {
  const std::vector<Example>& all = groups_[item.group];
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!leaves_out_question_ || all[i].object != object) out.push_back(i);
  return out;
}

void SolvedExamples::fail(const ChoiceItem& item, std::size_t needed, std::size_t found) const {
  throw DataError(item.place + ": expected at least " + std::to_string(needed) + " different solved questions" +
                  (item.group.empty() ? "" : " about \"" + item.group + "\"") + " in " + path_ +
                  (needed > count_ ? ", of which one may be the question itself" : "") + "; found " +
                  std::to_string(found) + ". Ask for fewer before each question, or add some");
}

}  // namespace titan::data
