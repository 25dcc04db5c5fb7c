// Tests real recordings of torch's operators.
#include "profile/kineto.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "profile/phase_ranges.h"
#include "trace/named_range.h"

namespace titan::profile {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("titan_kineto_test_" + std::to_string(getpid()))) {}
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

template <typename Body>
Trace record(const Body& body) {
  Kineto kineto(at::kCPU, {.rank = 2, .world_size = 4});
  kineto.prepare();
  kineto.start();
  body();
  return kineto.stop();
}

void multiply() { at::mm(at::ones({8, 8}), at::ones({8, 8})); }

std::vector<TraceEvent> named(const Trace& trace, const std::string& name) {
  auto events = trace.events();
  std::erase_if(events, [&](const auto& event) { return event.name != name; });
  return events;
}

TEST(Kineto, OperatorsLieInsideTheNamedRangeThatRanThem) {
  const auto trace = record([] {
    multiply();
    const NamedRange range([] { return "a part"; });
    multiply();
  });
  const auto ranges = named(trace, "a part"), products = named(trace, "aten::mm");
  ASSERT_EQ(ranges.size(), 1U);
  ASSERT_EQ(products.size(), 2U);
  EXPECT_EQ(ranges[0].kind, TraceEvent::Kind::kRange);
  EXPECT_EQ(products[0].kind, TraceEvent::Kind::kOperator);
  EXPECT_EQ(products[1].thread, ranges[0].thread);
  EXPECT_LE(products[0].end_ns, ranges[0].start_ns);
  EXPECT_LE(ranges[0].start_ns, products[1].start_ns);
  EXPECT_LE(products[1].end_ns, ranges[0].end_ns);
}

TEST(Kineto, ASecondRecordingHasNothingOfTheFirst) {
  record([] { multiply(); });
  const auto trace = record([] { at::ones({2}).add(1); });
  EXPECT_TRUE(named(trace, "aten::mm").empty());
  EXPECT_FALSE(named(trace, "aten::add").empty());
}

TEST(Kineto, AFileOfATraceSaysWhichRankItIs) {
  const Folder folder;
  record([] { multiply(); }).save(folder / "sub/trace.json");
  const auto json = nlohmann::json::parse(std::ifstream(folder / "sub/trace.json"));
  EXPECT_EQ(json.at("distributedInfo").at("rank"), 2);
  EXPECT_EQ(json.at("distributedInfo").at("world_size"), 4);
  EXPECT_TRUE(
      std::ranges::any_of(json.at("traceEvents"), [](const auto& event) { return event["name"] == "aten::mm"; }));
}

TEST(Kineto, AFileThatCannotBeWrittenIsAnError) {
  auto trace = record([] { multiply(); });
  EXPECT_THROW(trace.save("/proc/version/trace.json"), Error);
}

TEST(NamedRange, MakesNoNameWhileNobodyRecords) {
  bool is_made = false;
  const NamedRange range([&] {
    is_made = true;
    return "never";
  });
  EXPECT_FALSE(is_made);
}

TEST(PhaseRanges, PhasesThatBeginWhileTheyListenHaveNames) {
  const auto trace = record([] {
    const PhaseScope around(Phase::kIdle);
    std::optional<PhaseScope> before(std::in_place, Phase::kLoad);
    const PhaseRanges ranges;
    {
      const PhaseScope step(Phase::kStep);
      const PhaseScope optimizer(Phase::kOptimizer);
    }
    before.reset();  // began before the ranges: it is not shown, and nothing goes wrong
    const PhaseScope data(Phase::kData);
  });
  ASSERT_EQ(named(trace, "step").size(), 1U);
  ASSERT_EQ(named(trace, "optimizer").size(), 1U);
  EXPECT_EQ(named(trace, "data").size(), 1U);
  EXPECT_TRUE(named(trace, "load").empty());
  EXPECT_LE(named(trace, "step")[0].start_ns, named(trace, "optimizer")[0].start_ns);
  EXPECT_LE(named(trace, "optimizer")[0].end_ns, named(trace, "step")[0].end_ns);
}

}  // namespace
}  // namespace titan::profile
