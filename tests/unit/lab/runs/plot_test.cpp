#include "lab/runs/plot/plot.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "lab/runs/plot/canvas.h"

namespace titan::runs {
namespace {

using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// Counts characters, not bytes.
std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; }));
}

Curve falling(int points) {
  Curve curve;
  for (int i = 1; i <= points; ++i) curve.steps.push_back(i), curve.values.push_back(100.0 / i);
  return curve;
}

TEST(Canvas, DotsAreBitsOfBraillePatterns) {
  Canvas canvas(2, 1);
  canvas.dot(0, 0, 0);
  canvas.dot(1, 3, 0);
  canvas.dot(9, 0, 0);  // outside
  EXPECT_EQ(canvas.row(0, false, false), "⢁");
  canvas.line(2, 0, 2, 3, 1);
  EXPECT_EQ(canvas.row(0, false, false), "⢁⡇");
  EXPECT_EQ(canvas.row(0, false, true), "ab");
  EXPECT_THAT(canvas.row(0, true, false), HasSubstr("\033[38;5;172m⡇\033[0m"));
}

TEST(Canvas, LinesReachBothEnds) {
  Canvas canvas(3, 2);
  canvas.line(0, 7, 5, 0, 0);
  EXPECT_EQ(canvas.row(0, false, false), " ⢀⠎");
  EXPECT_EQ(canvas.row(1, false, false), "⡰⠁");
}

TEST(Plot, FitsItsRowsAndColumns) {
  for (const int columns : {30, 80, 200}) {
    for (const int rows : {8, 24}) {
      const auto lines = lines_of(plot("loss", {{"a run", falling(500)}}, {.columns = columns, .rows = rows}));
      EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows));
      for (const auto& line : lines) EXPECT_LE(width_of(line), static_cast<std::size_t>(columns)) << line;
    }
  }
}

TEST(Plot, NamesRunsOverAsManyLinesAsThatTakes) {
  std::vector<Series> series;
  for (int i = 0; i < 12; ++i) series.push_back({"a/rather/long/name/of/run/" + std::to_string(i), falling(20)});
  const auto lines = lines_of(plot("loss", series, {.columns = 60, .rows = 24}));
  EXPECT_EQ(lines.size(), 24u);
  for (const auto& line : lines) EXPECT_LE(width_of(line), 60u) << line;
  EXPECT_THAT(lines[0], HasSubstr("loss  a: a/rather/long/name/of/run/0"));
}

TEST(Plot, LabelsTheLimitsOfBothAxes) {
  const auto lines = lines_of(plot("loss", {{"run", falling(100)}}, {}));
  EXPECT_THAT(lines[0], HasSubstr("loss  run"));
  EXPECT_THAT(lines[1], HasSubstr("       100 ┤"));
  EXPECT_THAT(lines[21], HasSubstr("         1 ┤"));
  EXPECT_THAT(lines.back(), HasSubstr("            1 "));
  EXPECT_THAT(lines.back(), ::testing::EndsWith("100"));
}

TEST(Plot, LogarithmicLeavesOutWhatHasNoLogarithm) {
  const Curve curve{{1, 2, 3}, {0, 10, 1000}};
  const auto lines = lines_of(plot("x", {{"run", curve}}, {.log = true}));
  EXPECT_THAT(lines[1], HasSubstr("1000 ┤"));
  EXPECT_THAT(lines[21], HasSubstr("10 ┤"));
}

TEST(Plot, SaysThatThereIsNothingToDraw) {
  EXPECT_EQ(plot("loss", {{"run", {{1}, {kNaN}}}}, {}), "loss: no run has a number of it yet\n");
}

TEST(Plot, OneValueIsADot) { EXPECT_THAT(plot("loss", {{"run", {{5}, {2.5}}}}, {}), HasSubstr("2.5 ┤")); }

TEST(Smoothed, AveragesWhatThereWasAndPassesOverNaN) {
  const Curve curve{{1, 2, 3, 4}, {4, 2, kNaN, 2}};
  EXPECT_THAT(smoothed(curve, 0).values[1], 2);
  const auto half = smoothed(curve, 0.5).values;
  EXPECT_EQ(half[0], 4);
  EXPECT_DOUBLE_EQ(half[1], (4 * 0.25 + 2 * 0.5) / 0.75);
  EXPECT_TRUE(std::isnan(half[2]));
  EXPECT_DOUBLE_EQ(half[3], (4 * 0.125 + 2 * 0.25 + 2 * 0.5) / 0.875);
}

}  // namespace
}  // namespace titan::runs
