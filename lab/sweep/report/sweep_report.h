// Writes the report of a sweep: results.csv and report.html, a page that needs no other file and no network.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/sweep/results/store.h"
#include "lab/sweep/results/trial_metrics.h"

namespace titan::sweep {

// Writes both files into the sweep's folder, from the record and the trials' metrics. `generated`: the time to display.
void write_report(const std::filesystem::path& folder, const Record& record, const std::string& generated);

// Returns the page with `json` in it. Escapes what would end the script element or change how it is read.
std::string report_page(const std::string& json);

}  // namespace titan::sweep
