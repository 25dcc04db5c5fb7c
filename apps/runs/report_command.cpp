#include "apps/runs/report_command.h"

#include <CLI/CLI.hpp>
#include <ctime>
#include <filesystem>

#include "apps/common/parse_command.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "lab/runs/report/runs_report.h"

namespace titan {
namespace {

constexpr const char* kReportHelp =
    R"(Makes a page of one run or several: curves to zoom into and to smooth, events, the numbers in short, and what
differs between the configurations. It is one HTML file that needs no network. RUN is a dump folder (job.dump_folder),
or a folder of such, as a sweep makes. A run may be under way.)";

}  // namespace

int run_report_command(const std::vector<std::string>& args) {
  CLI::App app(kReportHelp, "titan-train report");
  std::vector<std::string> paths;
  std::string output;
  app.add_option("RUN", paths, "folders of runs")->required();
  app.add_option("--output", output,
                 "the page to write (default: report.html in the run's folder; of several runs, here)")
      ->type_name("FILE");
  if (const auto code = parse_command(app, args)) return *code;
  const auto folders = runs::find_runs(paths);
  std::filesystem::path page = output;
  if (output.empty()) page = folders.size() == 1 ? folders.front().path / "report.html" : "report.html";
  if (std::filesystem::is_directory(page))
    throw ConfigError("error: --output " + page.string() + " is a folder; expected the name of the page's file");
  const std::string text = runs::report_page(folders, date_text(std::time(nullptr)));
  write_file_atomically(page, text);
  print_result(counted(std::ssize(folders), "run") + ", " + format_bytes(static_cast<double>(text.size())) + ": " +
               page.string() + "\n");
  return kExitDone;
}

}  // namespace titan
