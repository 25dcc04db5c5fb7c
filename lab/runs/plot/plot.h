// A metric of one run or several as a chart of characters.
#pragma once

#include <string>
#include <vector>

#include "lab/runs/metrics_file.h"

namespace titan::runs {

struct PlotOptions {
  int columns = 80;  // no line is longer; at least kMinColumns
  int rows = 24;     // of the whole chart; at least kMinRows
  bool colors = false;
  bool log = false;   // a logarithmic axis; values that are not above 0 are left out
  double smooth = 0;  // see smoothed()
};

inline constexpr int kMinColumns = 30;
inline constexpr int kMinRows = 8;

struct Series {
  std::string name;
  Curve curve;
};

// The exponential moving average in which a value counts `weight` times as much as the one after it, corrected for the
// start (an average over what there was so far). What is not finite stays as it is, and does not count.
Curve smoothed(const Curve& curve, double weight);

// `metric` is the heading. Lines with their ends. A chart without a finite value says so in one line.
std::string plot(const std::string& metric, const std::vector<Series>& series, const PlotOptions& options);

}  // namespace titan::runs
