#include "apps/runs/compare_command.h"

#include <CLI/CLI.hpp>

#include "apps/common/parse_command.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "lab/runs/compare/compare.h"
#include "lab/runs/compare/print_comparison.h"

namespace titan {
namespace {

constexpr const char* kCompareHelp =
    R"(Finds the first step at which two runs part, by their metrics and, where debug.checksum_freq had both record them,
by checksums of every parameter and gradient, and says what differs between their configurations. RUN_A and RUN_B are
dump folders (job.dump_folder).)";

constexpr const char* kCompareExitCodes =
    "Exit codes: 0 the runs agree in the steps that both have, 1 they part, 2 wrong command line, or nothing to "
    "compare.";

runs::RunFolder only_run(const std::string& word) {
  const std::string words[] = {word};
  auto found = runs::find_runs(words);
  if (found.size() == 1) return found.front();
  throw DataError("error: " + word + ": expected the folder of one run; found " + std::to_string(found.size()) +
                  " runs in it, " + found.front().name + " the first: name one of them");
}

}  // namespace

int run_compare_command(const std::vector<std::string>& args) {
  CLI::App app(kCompareHelp, "titan-train compare");
  app.footer(kCompareExitCodes);
  std::string a, b;
  runs::CompareOptions options;
  bool json = false;
  app.add_option("RUN_A", a, "a run's folder")->required();
  app.add_option("RUN_B", b, "the other's")->required();
  app.add_option("--tolerance", options.tolerance,
                 "the largest relative difference that does not count, such as 1e-5 (default: 0, every bit counts)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--metric", options.metrics,
                 "what to compare, a column of metrics.jsonl or validation.NAME; several times for several (default: "
                 "loss, grad_norm, lr, tokens_seen, grad_scale, validation.loss)")
      ->type_name("NAME")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", json, "one JSON object instead of text");
  if (const auto code = parse_command(app, args)) return *code;
  const auto comparison = runs::compare(only_run(a), only_run(b), options);
  print_result(json ? runs::comparison_json(comparison) : runs::comparison_text(comparison));
  return comparison.agrees() ? kExitDone : kExitFailed;
}

}  // namespace titan
