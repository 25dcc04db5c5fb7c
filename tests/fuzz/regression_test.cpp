// Runs the targets of checkpoints without a fuzzer: on its earlier findings (corpus/), on valid inputs, and on both
// cut short, with flipped bits and with missing bytes.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <fstream>

#include "base/fs.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

// Memory that a target may add: a declared size must be refused before memory for it is requested.
constexpr std::uint64_t kSpareMemory = 512 << 20;
constexpr std::size_t kMostDamages = 1000;  // per input, spread over it

std::uint64_t address_space_in_use() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

class FuzzRegression : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    ASSERT_EQ(mallopt(M_ARENA_MAX, 1), 1);  // else each thread of a load could reserve 64 MiB
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = address_space_in_use() + kSpareMemory;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  void TearDown() override { setrlimit(RLIMIT_AS, &before_); }

  // Returns "" if the target neither crashes nor throws.
  static std::string finding(const std::string& bytes) {
    try {
      GetParam().run(bytes);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  static std::vector<std::pair<std::string, std::string>> inputs() {
    auto all = GetParam().seeds();
    const fs::path folder = fs::path(TITAN_FUZZ_CORPUS) / GetParam().name;
    for (const auto& entry : fs::directory_iterator(folder))
      all.emplace_back(entry.path().filename(), read_file(entry.path()));
    return all;
  }

  rlimit before_{};
};

TEST_P(FuzzRegression, SeedsAreAccepted) {
  for (const auto& [name, bytes] : GetParam().seeds()) EXPECT_TRUE(GetParam().run(bytes)) << name;
}

TEST_P(FuzzRegression, CorpusHasNoFinding) {
  for (const auto& [name, bytes] : inputs()) EXPECT_EQ(finding(bytes), "") << name;
}

TEST_P(FuzzRegression, DamagedInputsAreRefusedOrRead) {
  for (const auto& [name, bytes] : inputs()) {
    const std::size_t step = bytes.size() / kMostDamages + 1;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      EXPECT_EQ(finding(bytes.substr(0, at)), "") << name << " cut at " << at;
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at / step % 8)));
      EXPECT_EQ(finding(flipped), "") << name << " with a flipped bit at " << at;
      std::string shorter = bytes;
      shorter.erase(at, 2);  // size of a small number in a pickle
      EXPECT_EQ(finding(shorter), "") << name << " without two bytes at " << at;
    }
  }
}

// fuzz_inputs has random damages of all formats; these have a checksum or an index that each damage must not pass.
INSTANTIATE_TEST_SUITE_P(Targets, FuzzRegression,
                         ::testing::ValuesIn(kTargets.begin(), kTargets.begin() + kNumCheckpointTargets),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace titan::fuzz
