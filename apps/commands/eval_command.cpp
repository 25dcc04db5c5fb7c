#include "apps/commands/eval_command.h"

#include <ATen/core/grad_mode.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "apps/common/print_result.h"
#include "apps/flags/eval_flags.h"
#include "apps/saved/trained_model.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process/speaks.h"
#include "base/text.h"
#include "config/keys/values/evaluation_tasks.h"
#include "data/tasks/open_task.h"
#include "data/tokenizer/token_json.h"
#include "distributed/world.h"
#include "library/code_choice.h"
#include "library/run_or_report.h"
#include "metrics/history/append.h"
#include "train/guests/scores/task_evaluation.h"
#include "train/setup.h"

namespace titan {
namespace {

constexpr const char* kEval = "titan-train eval";
constexpr std::chrono::seconds kMeetTimeout(300);

TrainedModelOptions model_options(const EvalFlags& flags) {
  return {.command = kEval,
          .checkpoint = flags.path,
          .checkpoint_flag = "",
          .config = flags.config,
          .tokenizer = flags.tokenizer,
          .device = flags.device,
          .dtype = flags.dtype,
          .context = flags.context,
          .continues_texts = false};
}

std::vector<config::TaskEntry> parse_tasks(const EvalFlags& flags) {
  try {
    return config::parse_task_entries(flags.tasks, flags.num_fewshot, {"--task", "--num-fewshot"});
  } catch (const ConfigError& error) {
    throw ConfigError(std::string(kEval) + ": error: " + error.what());
  }
}

EvaluationTask open_task(const config::TaskEntry& entry, const TrainedModel& model, const EvalFlags& flags) {
  try {
    return data::open_task(entry, *model.tokenizer, model.context, flags.limit);
  } catch (const DataError& error) {
    throw DataError(std::string(kEval) + ": error: --task: " + error.what());
  }
}

// Appends a number as JSON; NaN and infinities, which JSON does not have, as strings.
void append_number(std::string& text, double value) {
  const auto name = metrics::name_of_not_finite(value);
  name.empty() ? metrics::append(text, "{}", value) : metrics::append(text, "\"{}\"", name);
}

// The perplexity of a model that has not learned anything may be any number.
std::string readable(double value) {
  return value < 100'000 ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

// Scores the tasks of a command line.
class Scorer {
 public:
  Scorer(const EvalFlags& flags, const TrainedModel& model, dist::ProcessGroup& group, bool speaks)
      : flags_(flags), model_(model), group_(group), speaks_(speaks) {}

  void score(const config::TaskEntry& entry) {
    const auto begin = std::chrono::steady_clock::now();
    const EvaluationTask task = open_task(entry, model_, flags_);
    if (task.num_cut > 0 && speaks_)
      spdlog::warn("{}: {} of {} texts are longer than the context, {} tokens, and lose their beginning", task.name,
                   task.num_cut, task.texts.size(), model_.context);
    const train::LogLikelihoods plan(task.texts, {.batch_size = flags_.batch_size, .vocab_size = model_.vocab_size});
    const at::NoGradGuard no_grad;
    const auto sums = plan.compute(*model_.model, model_.device, group_, [] { return false; });
    add_log_likelihoods(task, *sums);
    scores_.push_back(train::scores_of(task, *sums));
    num_fewshot_.push_back(entry.num_fewshot);
    num_texts_ += task.texts.size();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void print() const {
    if (!flags_.log_likelihoods.empty()) write_file_atomically(flags_.log_likelihoods, log_likelihoods_);
    print_result(flags_.json ? to_json() : to_text());
    if (flags_.quiet) return;
    std::fprintf(stderr, "%s: %s in %.2f s (%s, %s, %s, %s)\n", kEval,
                 counted(static_cast<std::int64_t>(num_texts_), "text").c_str(), seconds_, model_.folder.c_str(),
                 model_.device.is_cpu() ? "CPU" : "GPU",
                 model_.dtype == c10::ScalarType::BFloat16 ? "bfloat16" : "float32",
                 counted(group_.size(), "rank").c_str());
  }

 private:
  void add_log_likelihoods(const EvaluationTask& task, const std::vector<double>& sums) {
    if (flags_.log_likelihoods.empty()) return;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      metrics::append(log_likelihoods_,
                      "{{\"task\":\"{}\",\"text\":{},\"tokens\":{},\"scored\":{},\"log_likelihood\":", task.name, i,
                      task.texts[i].tokens.size(), task.texts[i].num_scored);
      append_number(log_likelihoods_, sums[i]);
      log_likelihoods_ += "}\n";
    }
  }

  std::string to_json() const {
    std::string out = "{\"model\":" + data::string_to_json(model_.folder) + ",\"tasks\":{";
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const metrics::TaskScores& task = scores_[i];
      metrics::append(out, "{}\"{}\":{{\"items\":{},\"num_fewshot\":{}", i == 0 ? "" : ",", task.task, task.num_items,
                      num_fewshot_[i]);
      for (const metrics::TaskScore& score : task.scores) {
        metrics::append(out, ",\"{}\":", score.score);
        append_number(out, score.value);
        if (!score.error) continue;
        metrics::append(out, ",\"{}_stderr\":", score.score);
        append_number(out, *score.error);
      }
      out += "}";
    }
    return out + "}}\n";
  }

  std::string to_text() const {
    std::size_t width = 4;
    for (const metrics::TaskScores& task : scores_) width = std::max(width, task.task.size());
    constexpr const char* kRow = "{:<{}}  {:>9}  {:>7}  {:<15}  {:>10}  {:>7}\n";
    std::string out = fmt::format(kRow, "task", width, "items", "fewshot", "score", "value", "stderr");
    for (std::size_t i = 0; i < scores_.size(); ++i)
      for (const metrics::TaskScore& score : scores_[i].scores)
        metrics::append(out, kRow, scores_[i].task, width, with_thousands(scores_[i].num_items), num_fewshot_[i],
                        score.score, readable(score.value), score.error ? fmt::format("{:.4f}", *score.error) : "");
    return out;
  }

  const EvalFlags& flags_;
  const TrainedModel& model_;
  dist::ProcessGroup& group_;
  bool speaks_;
  std::vector<metrics::TaskScores> scores_;
  std::vector<std::int64_t> num_fewshot_;  // of each task
  std::string log_likelihoods_;
  std::size_t num_texts_ = 0;
  double seconds_ = 0;
};

int score_all(const EvalFlags& flags, const LaunchEnv& launch, TrainedModel model, dist::ProcessGroup& group) {
  const auto entries = parse_tasks(flags);
  const bool speaks = speaks_for_job(launch);
  Scorer scorer(flags, model, group, speaks);
  for (const config::TaskEntry& entry : entries) scorer.score(entry);
  if (speaks) scorer.print();
  return kExitDone;
}

}  // namespace

int run_eval(const std::vector<std::string>& args) {
  EvalFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const LaunchEnv launch = detect_launch();
  log_to_stderr(kEval);
  choose_cpu_code(config::Cpu());  // a run's default
  if (launch.launcher == Launcher::kAlone) {
    dist::ProcessGroup alone("eval", {0}, 0, nullptr, nullptr);
    parse_tasks(flags);  // before the model is read
    return score_all(flags, launch, load_trained_model(model_options(flags)), alone);
  }
  report_once(speaks_for_job(launch), [&] { return parse_tasks(flags); });
  train::set_num_threads(launch.local_world_size);
  auto world = std::make_unique<dist::World>(launch, device_type_of(model_options(flags)), kMeetTimeout);
  return run_or_report(std::move(world), [&](dist::World& ranks) {
    train::share_processors(ranks);
    const int code = score_all(flags, launch, load_whole_model(model_options(flags), ranks.device()), ranks.group());
    ranks.shutdown();
    return code;
  });
}

}  // namespace titan
