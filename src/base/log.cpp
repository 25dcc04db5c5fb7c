#include "base/log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>

#include "base/fs.h"

namespace titan {
namespace {

int g_rank = 0;

// Prints level names in upper case, as TorchTitan does.
class LevelFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    for (const char c : spdlog::level::to_string_view(message.level)) {
      out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelFlag>(); }
};

// Buffers lines until open(), so that a refused start leaves no file.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  ~FileSink() override {
    if (fd_ >= 0) ::close(fd_);
  }

  void open(const std::filesystem::path& path) {
    const std::lock_guard lock(mutex_);
    std::filesystem::create_directories(path.parent_path());
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "open " + path.string());
    write(held_);
    held_ = {};
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    line_.clear();
    formatter_->format(message, line_);
    if (fd_ >= 0) {
      write({line_.data(), line_.size()});
    } else if (held_.size() < kMaxHeld) {
      append_plain(held_, {line_.data(), line_.size()});
    }
  }
  void flush_() override {}

 private:
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 20;  // commands never call open()

  static void append_plain(std::string& out, std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text.substr(at, 2) == "\033[") {
        at = std::min(text.find('m', at), text.size());
      } else {
        out.push_back(text[at]);
      }
    }
  }

  // Ignores errors: a log that cannot be written (disk full) does not end the run.
  void write(std::string_view text) {
    plain_.clear();
    append_plain(plain_, text);
    write_all(fd_, plain_);
  }

  int fd_ = -1;
  std::string held_;
  spdlog::memory_buf_t line_;  // a member, like plain_, to reuse its memory
  std::string plain_;
};

std::shared_ptr<FileSink> g_file_sink;

}  // namespace

bool stdout_is_terminal() {
  // Open MPI gives each rank a terminal, but forwards its output, possibly to a file.
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return false;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && term != nullptr && std::string_view(term) != "dumb";
}

bool speaks_for_all() { return g_rank == 0; }

void init_log(int rank, int world_size, bool colors, bool is_shown) {
  g_rank = rank;
  const bool color = colors && stdout_is_terminal() && std::getenv("NO_COLOR") == nullptr;
  auto sink = std::make_shared<spdlog::sinks::stdout_color_sink_mt>(color ? spdlog::color_mode::always
                                                                          : spdlog::color_mode::never);
  sink->set_level(is_shown ? spdlog::level::info : spdlog::level::warn);
  g_file_sink = std::make_shared<FileSink>();
  auto logger = std::make_shared<spdlog::logger>("titan", spdlog::sinks_init_list{std::move(sink), g_file_sink});
  const std::string who = world_size > 1 && rank != 0 ? "rank " + std::to_string(rank) : "root";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelFlag>('*').set_pattern("[titan] %Y-%m-%d %H:%M:%S,%e - " + who + " - %^%*%$ - %v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::info);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void log_to_stderr(const std::string& name) {
  auto logger = std::make_shared<spdlog::logger>("titan", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(name + ": %l: %v");
  logger->set_level(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

void log_to_file(const std::filesystem::path& path) {
  if (g_file_sink) g_file_sink->open(path);
}

}  // namespace titan
