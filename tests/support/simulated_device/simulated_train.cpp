// titan-train on the simulated device: the full program, with training.device = "cuda". If FINDINGS is set in its
// environment, writes the device's findings to $FINDINGS.RANK.json.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/engine.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::kGathered:
      return "gathered";
    case MemoryUse::kReduction:
      return "reduction";
    default:
      return "other";
  }
}

Json to_json(const StepFindings& step) {
  Json by_use;
  for (const auto& [use, bytes] : step.most_by_use) by_use[name_of(use)] = bytes;
  return {{"kernels", step.kernels}, {"peak_live_bytes", step.peak_live_bytes}, {"most_by_use", by_use}};
}

Json to_json(const Findings& found) {
  Json out = {{"races", found.races}, {"synchronizations", Json::array()}, {"steps", Json::object()}};
  for (const auto& [what, thread, during, step, stack] : found.synchronizations)
    out["synchronizations"].push_back(
        {{"what", what}, {"thread", thread}, {"during", during}, {"step", step}, {"stack", stack}});
  for (const auto& [number, step] : found.steps) out["steps"][std::to_string(number)] = to_json(step);
  out["connected"] = {{"deterministic", found.deterministic_when_connected},
                      {"dump_patience", found.dump_patience},
                      {"algorithms", found.algorithms}};
  out["peak_live_bytes"] = found.peak_live_bytes;
  out["peak_reserved_bytes"] = found.peak_reserved_bytes;
  return out;
}

}  // namespace
}  // namespace titan::sim

int main(int argc, char** argv) {
  titan::sim::install();
  const int code = titan_run_engine(argc, argv);
  if (const char* const path = std::getenv("FINDINGS")) {
    const char* const rank = std::getenv("RANK");
    std::ofstream(std::string(path) + "." + (rank ? rank : "0") + ".json")
        << titan::sim::to_json(titan::sim::findings()).dump(1);
  }
  return code;
}
