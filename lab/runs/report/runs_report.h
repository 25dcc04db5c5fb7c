// The HTML page about one or more runs: curves, events, and their differences.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/runs/find_runs.h"
#include "lab/runs/metrics_file.h"

namespace titan::runs {

// Returns about `max_points` points of the curve at most. Splits it into equal stretches and keeps the lowest and the
// highest value of each, and thus every peak; also keeps values that are not finite, the first point and the last.
Curve thinned_with_peaks(const Curve& curve, std::size_t max_points);

// Returns one HTML file that needs no other file and no network. `generated`: the time to display.
std::string report_page(const std::vector<RunFolder>& runs, const std::string& generated);

}  // namespace titan::runs
