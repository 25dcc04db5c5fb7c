#include "apps/schedule/schedule_svg.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

namespace titan {
namespace {

using pipeline::Kind;

constexpr double kLetter = 6.6, kLine = 26, kBox = 22, kLeft = 70, kTop = 64, kMargin = 16;

// Plain classes: viewers other than browsers know no variables, and show the light colors.
constexpr const char* kStyle = R"(<style>
.page { fill: #ffffff; } .idle { fill: #eaeef2; }
.F { fill: #8ecae6; } .B { fill: #95d5b2; } .I { fill: #ffd166; } .W { fill: #f4a6a6; }
text { fill: #1f2328; font: 11px ui-monospace, Menlo, Consolas, monospace; }
.head { font-size: 13px; font-weight: bold; } .box { text-anchor: middle; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } .idle { fill: #21262d; } text { fill: #e6edf3; }
  .F { fill: #1f6f8b; } .B { fill: #2d6a4f; } .I { fill: #8a6d1d; } .W { fill: #8c3f3f; }
}
</style>
)";

// Returns `text` with the characters that XML reserves written as entities.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '&')
      out += "&amp;";
    else if (letter == '<')
      out += "&lt;";
    else if (letter == '>')
      out += "&gt;";
    else if (letter == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(letter) < 0x20)
      out += ' ';
    else
      out += letter;
  }
  return out;
}

class SvgDrawing {
 public:
  explicit SvgDrawing(const ScheduleReport& report) : report_(report) {
    const DrawingScale scale = drawing_scale(report);
    per_time_ = scale.letters_per_step * kLetter / scale.shortest;
  }

  std::string text() {
    const double width = std::max(kLeft + report_.timeline.makespan * per_time_ + kMargin, 640.0);
    const double height = kTop + kLine * report_.order.num_ranks() + kMargin;
    const std::string title = escaped(report_.name + ": " + size_text(report_.order));
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n",
        width, height, title);
    out_ += kStyle;
    out_ += fmt::format("<rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
    out_ +=
        fmt::format("<text class=\"head\" x=\"{0}\" y=\"22\">{1}; {2}</text>\n", kMargin, title, bubble_text(report_));
    add_legend();
    for (int rank = 0; rank < report_.order.num_ranks(); ++rank) add_rank(rank);
    return out_ + "</svg>\n";
  }

 private:
  void add_legend() {
    static constexpr std::array<std::pair<Kind, const char*>, 4> kKinds = {
        {{Kind::kForward, "forward"},
         {Kind::kBackward, "backward"},
         {Kind::kInputGradient, "input gradient"},
         {Kind::kWeightGradient, "weight gradient"}}};
    double x = kMargin;
    const auto add = [&](std::string_view css, const std::string& text) {
      out_ += fmt::format(
          "<rect class=\"{0}\" x=\"{1:.1f}\" y=\"36\" width=\"14\" height=\"14\"/><text x=\"{2:.1f}\" "
          "y=\"47\">{3}</text>\n",
          css, x, x + 20, text);
      x += 36 + kLetter * static_cast<double>(text.size());
    };
    for (const auto& [kind, text] : kKinds) add(name_of(kind), text);
    add("idle", "waits");
  }

  void add_rank(int rank) {
    const double y = kTop + kLine * rank;
    const auto stages = stages_of_rank(report_.order, rank);
    out_ += fmt::format(
        "<text x=\"{0}\" y=\"{1:.1f}\">rank {2}</text><rect class=\"idle\" x=\"{3}\" y=\"{4:.1f}\" "
        "width=\"{5:.2f}\" height=\"{6}\"/>\n",
        kMargin, y + 15, rank, kLeft, y, report_.timeline.makespan * per_time_, kBox);
    for (const auto& step : report_.timeline.ranks[rank].steps) {
      const auto& order = report_.order.orders[rank][step.index];
      const double x = kLeft + step.begin * per_time_, width = (step.end - step.begin) * per_time_ - 1;
      const double height = kBox / static_cast<double>(order.actions().size());
      double top = y;
      for (const pipeline::Action& action : order.actions()) {
        const double place = static_cast<double>(std::ranges::find(stages, action.stage) - stages.begin());
        const double opacity = 1 - 0.55 * place / static_cast<double>(stages.size());
        out_ += fmt::format(
            "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
            "fill-opacity=\"{:.2f}\"/>",
            name_of(action.kind), x, top, width, height, opacity);
        top += height;
      }
      out_ += fmt::format("<text class=\"box\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", x + width / 2, y + 15,
                          label_of(order));
    }
  }

  const ScheduleReport& report_;
  double per_time_;  // pixels
  std::string out_;
};

}  // namespace

std::string schedule_svg(const ScheduleReport& report) { return SvgDrawing(report).text(); }

}  // namespace titan
