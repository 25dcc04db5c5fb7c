// Runs the targets of checkpoints without a fuzzer: on its earlier findings (corpus/), on valid inputs, and on both
// cut short, with flipped bits and with missing bytes.
#include <gtest/gtest.h>

#include "base/fs.h"
#include "tests/fuzz/memory_limit.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostDamages = 1000;  // per input, spread over it

class FuzzRegression : public ::testing::TestWithParam<Target> {
 protected:
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

  const MemoryLimit limit_;
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
