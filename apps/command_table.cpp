#include "apps/command_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/flags/convert_flags.h"
#include "apps/flags/doctor_flags.h"
#include "apps/flags/eval_flags.h"
#include "apps/flags/generate_flags.h"
#include "apps/flags/init_flags.h"
#include "apps/flags/inspect_flags.h"
#include "apps/flags/option_values.h"
#include "apps/flags/runs/compare_flags.h"
#include "apps/flags/runs/plot_flags.h"
#include "apps/flags/runs/report_flags.h"
#include "apps/flags/schedule_flags.h"
#include "apps/flags/supervise_flags.h"
#include "apps/flags/sweep_flags.h"
#include "apps/flags/tokenize_flags.h"
#include "apps/flags/tokenizer_flags.h"
#include "base/text.h"
#include "config/command_line/program.h"
#include "facts/device_facts.h"
#include "models/catalog.h"
#include "models/from_folder.h"
#include "pipeline/schedule_kinds.h"

namespace titan {
namespace {

using Flags = std::vector<config::CompletedFlag>;

// Returns the text of a note of option_values.h; empty if the option has none.
std::string note(CLI::Option* option, const char* name) {
  try {
    CLI::Validator validator = *option->get_validator(name);
    return validator.active().get_description();
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

// Returns "a" and "b" of a type such as "TEXT:{a,b}".
std::vector<std::string> listed_values(const std::string& type) {
  const auto begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return split(type.substr(begin + 1, end - begin - 1), ',');
}

config::CompletedFlag completed(CLI::Option* option) {
  config::CompletedFlag out{
      .flag = "--" + option->get_lnames().front(), .doc = option->get_description(), .values = {}};
  const std::string type = option->get_type_name(), suggested = note(option, kSuggestedValues);
  out.takes_value = option->get_items_expected_max() > 0;
  out.values = suggested.empty() ? listed_values(type) : split(suggested, ',');
  out.is_path = type == "FILE" || type == "PATH" || type == "FOLDER" || !note(option, kSuggestedPath).empty();
  return out;
}

Flags completed_flags(CLI::App& app) {
  Flags out;
  for (CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) out.push_back(completed(option));
  return out;
}

template <typename Values>
Flags flags_of(std::string_view word) {
  Values values;
  CLI::App app;
  declare(app, values);
  return completed_flags(word.empty() ? app : *app.get_subcommand(std::string(word)));
}

std::vector<config::Command> commands() {
  return {
      {"init", "print a configuration to start from, for a model and a number of GPUs", {}, flags_of<InitFlags>},
      {"tokenizer", "train a tokenizer, or use one on text", {"train", "encode", "decode"}, flags_of<TokenizerFlags>},
      {"tokenize", "turn text into shards of tokens, for training.dataset = \"indexed\"", {}, flags_of<TokenizeFlags>},
      {"sweep", "run many jobs that differ in some keys, and compare them", {}, flags_of<SweepFlags>},
      {"report", "make a page of one run or several: curves, events, differences", {}, flags_of<ReportFlags>},
      {"plot", "draw curves of runs in the terminal", {}, flags_of<PlotFlags>},
      {"compare", "find the first step at which two runs part, and in which parameter", {}, flags_of<CompareFlags>},
      {"inspect", "say what a checkpoint holds, and whether it is whole", {}, flags_of<InspectFlags>},
      {"convert", "turn checkpoints into Hugging Face's format and back", {}, flags_of<ConvertFlags>},
      {"doctor", "say whether this machine, or all ranks of a job, are ready to train", {}, flags_of<DoctorFlags>},
      {"generate", "print what a trained model writes after a prompt", {}, flags_of<GenerateFlags>},
      {"eval", "score a trained model on tasks: multiple choice, perplexity", {}, flags_of<EvalFlags>},
      {"schedule", "draw a schedule of pipeline parallelism: order, waits, memory", {}, flags_of<ScheduleFlags>},
      {"supervise", "start mpirun or srun again after a failure of the run", {}, flags_of<SuperviseFlags>},
  };
}

std::vector<std::string> device_names() {
  const auto models = models_with_known_memory();
  std::vector<std::string> names(models.begin(), models.end());
  names.emplace_back("A100-40GB");  // a variant, which the help names
  return names;
}

}  // namespace

void describe_program() {
  config::set_program({.commands = commands(),
                       .usual_values = {{"model.name", models::model_names()},
                                        {"model.flavor", models::flavor_names()},
                                        {"parallelism.pipeline_parallel_schedule", pipeline::schedule_names()},
                                        {"device", device_names()}},
                       .complete_model = models::complete_from_folder,
                       .check_model = models::check_model,
                       .check_plan = models::check_plan});
}

}  // namespace titan
