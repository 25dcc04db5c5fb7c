// A picture of dots for a terminal: each character of Unicode's Braille patterns is two dots wide and four high.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan::runs {

class Canvas {
 public:
  // In characters; at least 1 each.
  Canvas(int columns, int rows);

  int width() const { return columns_ * 2; }
  int height() const { return rows_ * 4; }

  // In dots from the upper left; what lies outside is left out. `series`: whose the dots are, from 0; of several that
  // share a character the last one counts.
  void line(int x0, int y0, int x1, int y1, int series);
  void dot(int x, int y, int series);

  // One row of characters, without blanks at its end. Series differ by their colors, or without colors, where there
  // are several, by letters in the place of dots: a for the first.
  std::string row(int index, bool colors, bool letters) const;

 private:
  struct Cell {
    std::uint8_t dots = 0;
    int series = 0;
  };
  int columns_, rows_;
  std::vector<Cell> cells_;
};

// What turns on the color of a series in a terminal, and what turns it off.
std::string color_of_series(int series);
inline constexpr const char* kNoColor = "\033[0m";

}  // namespace titan::runs
