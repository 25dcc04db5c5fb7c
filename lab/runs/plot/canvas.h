// A dot canvas for a terminal: each Braille character of Unicode is two dots wide and four high.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan::runs {

class Canvas {
 public:
  // Size in characters; at least 1 each.
  Canvas(int columns, int rows);

  int width() const { return columns_ * 2; }
  int height() const { return rows_ * 4; }

  // Draws at dots from the upper left; dots outside are ignored. `series`: index of the curve, from
  // 0; if several share a character, the last one sets its color or letter.
  void line(int x0, int y0, int x1, int y1, int series);
  void dot(int x, int y, int series);

  // Returns one row of characters, without blanks at its end. Series differ by color; with
  // `letters`, letters replace the dots: a for the first series.
  std::string row(int index, bool colors, bool letters) const;

 private:
  struct Cell {
    std::uint8_t dots = 0;
    int series = 0;
  };
  int columns_, rows_;
  std::vector<Cell> cells_;
};

// Returns the control sequence that sets a series' color in a terminal; kNoColor resets it.
std::string color_of_series(int series);
inline constexpr const char* kNoColor = "\033[0m";

}  // namespace titan::runs
