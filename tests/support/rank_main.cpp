// main() of the tests that have ranks; replaces GoogleTest's.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/rank_starter.h"

int main(int argc, char** argv) {
  const auto test = titan::test::fork_rank_starter();
  if (test) {
    signal(SIGPIPE, SIG_IGN);  // as the program does: a write to a rank that ended is an error
    std::string filter = "--gtest_filter=" + *test;
    char* words[] = {argv[0], filter.data(), nullptr};
    int count = 2;
    testing::InitGoogleTest(&count, words);
    return RUN_ALL_TESTS();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
