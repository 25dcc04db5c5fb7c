#include "base/log.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/fs.h"
#include "tests/support/temporary_folder.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogFile, HasWhatWasSaidBeforeItWasMade) {
  const test::TemporaryFolder folder;
  const auto old = spdlog::default_logger();
  const fs::path path = folder / "logs/rank_1.log";
  init_log(1, 2, /*colors=*/false, /*is_shown=*/false);
  spdlog::info("before");
  spdlog::debug("too small");
  EXPECT_FALSE(fs::exists(path));
  log_to_file(path);
  spdlog::info("\033[31mred\033[39m words");
  EXPECT_THAT(read_file(path), AllOf(HasSubstr(" - rank 1 - INFO - before\n"), HasSubstr(" - INFO - red words\n"),
                                     Not(HasSubstr("too small"))));
  const std::string first = read_file(path);
  init_log(1, 2, /*colors=*/false, /*is_shown=*/false);
  spdlog::warn("again");
  log_to_file(path);
  EXPECT_THAT(read_file(path), ::testing::StartsWith(first));
  EXPECT_THAT(read_file(path), HasSubstr(" - WARNING - again\n"));
  spdlog::set_default_logger(old);
}

}  // namespace
}  // namespace titan
