#include "apps/runs/compare_command.h"

#include "apps/common/print_result.h"
#include "apps/flags/runs/compare_flags.h"
#include "base/error.h"
#include "lab/runs/compare/print_comparison.h"

namespace titan {
namespace {

runs::RunFolder only_run(const std::string& word) {
  const std::string words[] = {word};
  auto found = runs::find_runs(words);
  if (found.size() == 1) return found.front();
  throw DataError("error: " + word + ": expected the folder of one run; found " + std::to_string(found.size()) +
                  " runs in it, " + found.front().name + " the first: name one of them");
}

}  // namespace

int run_compare_command(const std::vector<std::string>& args) {
  CompareFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const auto comparison = runs::compare(only_run(flags.run_a), only_run(flags.run_b), flags.options);
  print_result(flags.json ? runs::comparison_json(comparison) : runs::comparison_text(comparison));
  return comparison.agrees() ? kExitDone : kExitFailed;
}

}  // namespace titan
