// The report of a sweep: results.csv and report.html, one file that needs no other and no network.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "lab/sweep/results/store.h"
#include "lab/sweep/results/trial_metrics.h"

namespace titan::sweep {

// Writes both files into the sweep's folder, from the record and the trials' metrics. `generated` is the time to name.
void write_report(const std::filesystem::path& folder, const Record& record, const std::string& generated);

// The page with `json` in it. What would end the script element, or change how it is read, is escaped.
std::string report_page(const std::string& json);

}  // namespace titan::sweep
