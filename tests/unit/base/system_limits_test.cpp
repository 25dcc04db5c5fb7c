#include "base/limits/system_limits.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <stdexcept>
#include <string>
#include <system_error>

namespace titan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return std::to_string(limit.rlim_cur);
}

TEST(SystemLimits, AreNamedWithWhatToRaise) {
  EXPECT_EQ(with_limits("cannot create a: Too many open files"),
            "cannot create a: Too many open files: this process may have no more than " + open_files() +
                " open at a time; raise ulimit -Hn (LimitNOFILE of a service)");
  EXPECT_THAT(with_limits("cannot write a: File too large"),
              StartsWith("cannot write a: File too large: the file has reached the size that this process may write"));
  EXPECT_THAT(message_of_error(std::bad_alloc()), StartsWith("std::bad_alloc: out of memory; "));
  const std::system_error refused(EAGAIN, std::generic_category());
  EXPECT_THAT(message_of_error(refused), HasSubstr("no further thread or process can be started here; "));
  EXPECT_THAT(message_of_error(refused), HasSubstr("OMP_NUM_THREADS"));
}

TEST(SystemLimits, AreOfThisProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 3 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT(with_limits("File too large"), HasSubstr(", at most 3.00 MiB: raise that (ulimit -f)"));
  ::setrlimit(RLIMIT_FSIZE, &before);
}

TEST(SystemLimits, AreNamedOnceAndInTheFirstLine) {
  const std::string once = with_limits("rank 1: Too many open files\nits stack");
  EXPECT_THAT(once, HasSubstr("of a service)\nits stack"));
  EXPECT_EQ(with_limits(once), once);
  EXPECT_EQ(with_limits("no such file\nToo many open files"), "no such file\nToo many open files");
}

TEST(SystemLimits, KnowALackOfThreads) {
  EXPECT_TRUE(is_lack_of_threads(std::system_error(EAGAIN, std::generic_category())));
  EXPECT_FALSE(is_lack_of_threads(std::system_error(EACCES, std::generic_category())));
  EXPECT_FALSE(is_lack_of_threads(std::runtime_error("Resource temporarily unavailable")));
}

}  // namespace
}  // namespace titan
