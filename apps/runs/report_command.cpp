#include "apps/runs/report_command.h"

#include <ctime>
#include <filesystem>

#include "apps/common/print_result.h"
#include "apps/flags/runs/report_flags.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "lab/runs/report/runs_report.h"

namespace titan {
int run_report_command(const std::vector<std::string>& args) {
  ReportFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const auto folders = runs::find_runs(flags.runs);
  std::filesystem::path page = flags.output;
  if (flags.output.empty()) page = folders.size() == 1 ? folders.front().path / "report.html" : "report.html";
  if (std::filesystem::is_directory(page))
    throw ConfigError("error: --output " + page.string() + " is a folder; expected the name of the page's file");
  const std::string text = runs::report_page(folders, date_text(std::time(nullptr)));
  write_file_atomically(page, text);
  print_result(counted(std::ssize(folders), "run") + ", " + format_bytes(static_cast<double>(text.size())) + ": " +
               page.string() + "\n");
  return kExitDone;
}

}  // namespace titan
