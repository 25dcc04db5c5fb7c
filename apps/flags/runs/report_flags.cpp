#include "apps/flags/runs/report_flags.h"

#include <CLI/CLI.hpp>

namespace titan {
namespace {

constexpr const char* kReportHelp =
    R"(Makes a page of one run or several: curves to zoom into and to smooth, events, the numbers in short, and what
differs between the configurations. It is one HTML file that needs no network. RUN is a dump folder (job.dump_folder),
or a folder of such, as a sweep makes. A run may be under way.)";

}  // namespace

void declare(CLI::App& app, ReportFlags& flags) {
  app.name("titan-train report");
  app.description(kReportHelp);
  app.add_option("RUN", flags.runs, "folders of runs")->required();
  app.add_option("--output", flags.output,
                 "the page to write (default: report.html in the run's folder; of several runs, here)")
      ->type_name("FILE");
}

}  // namespace titan
