#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <memory>

namespace titan {
namespace {

int g_rank = 0;

// Level names in upper case, as TorchTitan prints them.
class LevelFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    for (const char c : spdlog::level::to_string_view(message.level)) {
      out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelFlag>(); }
};

}  // namespace

bool stdout_is_terminal() {
  // Open MPI gives its ranks a terminal each and passes on what they write there, to a file as well.
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return false;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && term != nullptr && std::string_view(term) != "dumb";
}

bool speaks_for_all() { return g_rank == 0; }

void init_log(int rank, int world_size, bool colors) {
  g_rank = rank;
  const bool color = colors && stdout_is_terminal() && std::getenv("NO_COLOR") == nullptr;
  auto sink = std::make_shared<spdlog::sinks::stdout_color_sink_mt>(color ? spdlog::color_mode::always
                                                                          : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("titan", std::move(sink));
  const std::string who = world_size > 1 && rank != 0 ? "rank " + std::to_string(rank) : "root";
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelFlag>('*').set_pattern("[titan] %Y-%m-%d %H:%M:%S,%e - " + who + " - %^%*%$ - %v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace titan
