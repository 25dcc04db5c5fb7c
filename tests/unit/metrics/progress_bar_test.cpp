// Judges the bar by what a reader would see: its output goes through a pseudo-terminal into a small screen.
#include "metrics/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>

namespace titan::metrics {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Interprets what the bar uses: carriage return, newline and "erase to the end of the line".
std::vector<std::string> screen_of(const std::string& bytes) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (bytes.compare(i, 3, "\033[K") == 0) {
      lines.back().resize(std::min(column, lines.back().size()));
      i += 2;
    } else {
      if (lines.back().size() <= column) lines.back().resize(column + 1, ' ');
      lines.back()[column++] = bytes[i];
    }
  }
  return lines;
}

class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    EXPECT_TRUE(master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0);
    const winsize size{24, columns, 0, 0};
    EXPECT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
    file_ = fopen(ptsname(master_), "w");
    EXPECT_NE(file_, nullptr);
  }
  ~Terminal() {
    fclose(file_);
    close(master_);
  }
  FILE* file() const { return file_; }
  std::vector<std::string> screen() {
    char buffer[4096];
    for (ssize_t n; (n = read(master_, buffer, sizeof(buffer))) > 0;)
      bytes_.append(buffer, static_cast<std::size_t>(n));
    return screen_of(bytes_);
  }

 private:
  int master_;
  FILE* file_ = nullptr;
  std::string bytes_;
};

class Bar : public ::testing::Test {
 protected:
  void SetUp() override {
    old_ = spdlog::default_logger();
    logger_ = std::make_shared<spdlog::logger>("bar_test");
    spdlog::set_default_logger(logger_);
  }
  void TearDown() override { spdlog::set_default_logger(old_); }
  void log_to(const Terminal& terminal) {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path_of(terminal.file()));
    logger_->sinks() = {sink};
    logger_->set_pattern("%v");
  }
  static std::string path_of(FILE* file) { return ttyname(fileno(file)); }

  std::shared_ptr<spdlog::logger> old_, logger_;
};

TEST_F(Bar, LogLinesStayWholeAboveTheBar) {
  Terminal terminal(100);
  log_to(terminal);
  ProgressBar bar(terminal.file(), 4);
  bar.on_step(1);
  spdlog::info("a line");
  StepMetrics m;
  m.loss = 2.5;
  m.tokens_per_second = 2650.4;
  bar.log(m);
  spdlog::info("another");
  const auto screen = terminal.screen();
  ASSERT_THAT(screen, SizeIs(3));
  EXPECT_EQ(screen[0], "a line");
  EXPECT_EQ(screen[1], "another");
  EXPECT_EQ(screen[2], " 25% |#####               | 1/4  loss 2.5000  tps 2,650");
}

TEST_F(Bar, ShowsTheFirstStepWhileItRuns) {
  Terminal terminal(100);
  log_to(terminal);
  ProgressBar bar(terminal.file(), 4);
  const StepProgress half_of_forward{.layers = 6, .microbatches = 1, .forwards = 4};
  bar.on_progress(1, half_of_forward, 65);
  EXPECT_EQ(terminal.screen().back(), "  0% |                    | 0/4  step 1: 16% after 1:05");
  bar.on_step(1);
  EXPECT_EQ(terminal.screen().back(), " 25% |#####               | 1/4");
}

TEST_F(Bar, CutsTheFirstStepToTheTerminal) {
  Terminal terminal(36);
  log_to(terminal);
  ProgressBar bar(terminal.file(), 4);
  bar.on_progress(4, {.layers = 6, .microbatches = 1, .forwards = 4}, 65);
  EXPECT_EQ(terminal.screen().back(), " 75% |###############     | 3/4  st");
}

TEST_F(Bar, EndsAtAHundredPercentAndIsWipedAway) {
  Terminal terminal(100);
  log_to(terminal);
  const auto sinks = logger_->sinks();
  {
    ProgressBar bar(terminal.file(), 3);
    for (int step = 1; step <= 3; ++step) bar.on_step(step);
    EXPECT_THAT(terminal.screen().back(), AllOf(StartsWith("100% |####################| 3/3"), HasSubstr("0:00 left")));
  }
  EXPECT_EQ(terminal.screen().back(), "");
  EXPECT_EQ(logger_->sinks(), sinks);
}

TEST_F(Bar, StaysShorterThanTheTerminal) {
  Terminal terminal(30);
  log_to(terminal);
  ProgressBar bar(terminal.file(), 1000);
  bar.log(StepMetrics{});
  EXPECT_THAT(terminal.screen().back(), SizeIs(29));
}

std::string progress(std::int64_t step, std::int64_t total_steps, const StepMetrics* last, double seconds_left,
                     int columns, std::string_view sparkline = {}) {
  std::string text = "what it was";
  format_progress(step, total_steps, last, seconds_left, columns, sparkline, text);
  return text;
}

std::string sparkline_of(std::span<const double> values) {
  std::string text = "what it was";
  format_sparkline(values, text);
  return text;
}

TEST(FormatProgress, TimeLeftAndLimits) {
  EXPECT_EQ(progress(50, 100, nullptr, 65, 100), " 50% |##########          | 50/100  1:05 left");
  EXPECT_EQ(progress(120, 100, nullptr, -1, 100), "100% |####################| 120/100");
  EXPECT_EQ(progress(1, 100, nullptr, -1, 0), "");
}

TEST(FormatProgress, MemoryAndSparklineWhereThereIsRoom) {
  StepMetrics m;
  m.memory.peak_bytes = std::uint64_t{3} << 29;
  const std::string bar = "  0% |                    | 0/100  loss 0.0000  tps 0", memory = "  1.50GiB";
  const std::string line = sparkline_of(std::array{1.0, 2.0, 3.0, 8.0, std::nan(""), 4.5});
  EXPECT_EQ(line, "\u2581\u2582\u2583\u2588 \u2585");
  const int with_memory = static_cast<int>(bar.size() + memory.size()) + 1;
  EXPECT_EQ(progress(0, 100, &m, -1, with_memory - 1, ""), bar);
  EXPECT_EQ(progress(0, 100, &m, -1, with_memory, ""), bar + memory);
  EXPECT_EQ(progress(0, 100, &m, -1, with_memory + 7, line), bar + memory) << "six columns and two blanks";
  EXPECT_EQ(progress(0, 100, &m, -1, with_memory + 8, line), bar + memory + "  " + line);
}

TEST(FormatSparkline, OfEqualOrFewValues) {
  EXPECT_EQ(sparkline_of(std::array{1.0}), "");
  EXPECT_EQ(sparkline_of(std::array{2.0, 2.0}), "\u2581\u2581");
  EXPECT_EQ(sparkline_of(std::array{std::nan(""), std::nan("")}), "  ");
}

TEST(MakeProgressBar, NothingWithoutATerminal) {
  const int saved = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
  dup2(null, STDOUT_FILENO);
  const auto bar = make_progress_bar(10);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  close(null);
  EXPECT_EQ(bar, nullptr);
}

}  // namespace
}  // namespace titan::metrics
