// The page about one run or several: curves, events, what differs between them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/runs/find_runs.h"
#include "lab/runs/metrics_file.h"

namespace titan::runs {

// At most about `max_points` of the curve. Of each of as many equal stretches of it the lowest and the highest value
// stay, and with them every peak; so do values that are not finite, the first point and the last.
Curve thinned_with_peaks(const Curve& curve, std::size_t max_points);

// One HTML file that needs no other and no network. `generated`: the time to name.
std::string report_page(const std::vector<RunFolder>& runs, const std::string& generated);

}  // namespace titan::runs
