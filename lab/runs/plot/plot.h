// Draws a metric of one or more runs as a chart of characters.
#pragma once

#include <string>
#include <vector>

#include "lab/runs/metrics_file.h"

namespace titan::runs {

struct PlotOptions {
  int columns = 80;  // maximum length of a line; at least kMinColumns
  int rows = 24;     // of the full chart; at least kMinRows
  bool colors = false;
  bool log = false;   // logarithmic axis; skips values that are not above 0
  double smooth = 0;  // see smoothed()
};

inline constexpr int kMinColumns = 30;
inline constexpr int kMinRows = 8;

struct Series {
  std::string name;
  Curve curve;
};

// Returns the exponential moving average in which a value counts `weight` times as much as the one after it, corrected
// for the start (an average over the values so far). Values that are not finite stay unchanged and do not count.
Curve smoothed(const Curve& curve, double weight);

// Returns the chart as lines with newlines, under the heading `metric`. Without a finite value: one line that says so.
std::string plot(const std::string& metric, const std::vector<Series>& series, const PlotOptions& options);

}  // namespace titan::runs
