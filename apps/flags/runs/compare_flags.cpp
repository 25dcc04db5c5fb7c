#include "apps/flags/runs/compare_flags.h"

#include <CLI/CLI.hpp>

#include "apps/flags/option_values.h"

namespace titan {
namespace {

constexpr const char* kCompareHelp =
    R"(Finds the first step at which two runs part, by their metrics and, where debug.checksum_freq had both record them,
by checksums of every parameter and gradient, and says what differs between their configurations. RUN_A and RUN_B are
dump folders (job.dump_folder).)";

constexpr const char* kCompareExitCodes =
    "Exit codes: 0 the runs agree in the steps that both have, 1 they part, 2 wrong command line, or nothing to "
    "compare.";

}  // namespace

void declare(CLI::App& app, CompareFlags& flags) {
  app.name("titan-train compare");
  app.description(kCompareHelp);
  app.footer(kCompareExitCodes);
  app.add_option("RUN_A", flags.run_a, "a run's folder")->required();
  app.add_option("RUN_B", flags.run_b, "the other's")->required();
  app.add_option("--tolerance", flags.options.tolerance,
                 "the largest relative difference that does not count, such as 1e-5 (default: 0, every bit counts)")
      ->check(number_between(0, 1e9, "0 to 1e9"));
  app.add_option("--metric", flags.options.metrics,
                 "what to compare, a column of metrics.jsonl or validation.NAME; several times for several (default: "
                 "loss, grad_norm, lr, tokens_seen, grad_scale, validation.loss)")
      ->type_name("NAME")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", flags.json, "one JSON object instead of text");
}

}  // namespace titan
