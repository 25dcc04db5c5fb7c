#include "lab/runs/plot/canvas.h"

#include <cstdlib>
#include <utility>

namespace titan::runs {
namespace {

// Bit of each dot of a character, [row][column], as Unicode numbers them.
constexpr std::uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

// Encodes U+2800 plus the dots in UTF-8.
std::string braille(std::uint8_t dots) {
  return {'\xe2', static_cast<char>(0xa0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3f))};
}

}  // namespace

std::string color_of_series(int series) {
  // Blue, orange, green, pink, violet, olive, gray, red: the report's colors, as closely as 256 colors allow.
  constexpr int kColors[] = {32, 172, 36, 169, 97, 142, 245, 160};
  return "\033[38;5;" + std::to_string(kColors[series % 8]) + "m";
}

Canvas::Canvas(int columns, int rows)
    : columns_(columns), rows_(rows), cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)) {}

void Canvas::dot(int x, int y, int series) {
  if (x < 0 || y < 0 || x >= width() || y >= height()) return;
  Cell& cell = cells_[static_cast<std::size_t>(y / 4 * columns_ + x / 2)];
  cell.dots = static_cast<std::uint8_t>(cell.dots | kBits[y % 4][x % 2]);
  cell.series = series;
}

// Bresenham's algorithm.
void Canvas::line(int x0, int y0, int x1, int y1, int series) {
  const int dx = std::abs(x1 - x0), dy = -std::abs(y1 - y0);
  const int right = x0 < x1 ? 1 : -1, down = y0 < y1 ? 1 : -1;
  for (int error = dx + dy;;) {
    dot(x0, y0, series);
    if (x0 == x1 && y0 == y1) return;
    const int twice = 2 * error;
    if (twice >= dy) error += dy, x0 += right;
    if (twice <= dx) error += dx, y0 += down;
  }
}

std::string Canvas::row(int index, bool colors, bool letters) const {
  std::string out, blanks;
  int color = -1;  // series whose color is active
  for (int x = 0; x < columns_; ++x) {
    const Cell& cell = cells_[static_cast<std::size_t>(index * columns_ + x)];
    if (cell.dots == 0) {
      blanks += ' ';
      continue;
    }
    if (colors && cell.series != color) out += color_of_series(cell.series);
    color = cell.series;
    out += std::exchange(blanks, "");
    const std::string mark = letters ? std::string(1, static_cast<char>('a' + cell.series % 26)) : braille(cell.dots);
    out += mark;
  }
  return colors && color >= 0 ? out + kNoColor : out;
}

}  // namespace titan::runs
