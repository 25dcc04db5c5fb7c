#include "checkpoint/dcp/metadata.h"

#include "checkpoint/dcp/planner.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

// Requires that every copy is inside the stored chunk and the wanted tensor, whatever the file says about itself.
void check_plan(const checkpoint::LoadPlan& plan, const std::vector<checkpoint::Item>& wanted) {
  for (const checkpoint::ReadBox& box : plan.boxes) {
    require(box.item < wanted.size() && box.chunk != nullptr, "a box of nothing");
    const auto& spec = std::get<checkpoint::TensorItem>(wanted[box.item]).spec;
    for (std::size_t d = 0; d < spec.local_shape.size(); ++d) {
      require(box.sizes.at(d) > 0 && box.start_in_chunk.at(d) >= 0 && box.start_in_local.at(d) >= 0,
              "a box below zero");
      require(box.sizes[d] <= box.chunk->sizes.at(d) - box.start_in_chunk[d], "a box beyond its chunk");
      require(box.sizes[d] <= spec.local_shape[d] - box.start_in_local[d], "a box beyond its tensor");
    }
    for (const checkpoint::ReadBox& other : plan.boxes) {
      if (&other == &box || other.item != box.item) continue;
      bool apart = false;
      for (std::size_t d = 0; d < spec.local_shape.size(); ++d)
        apart |= box.start_in_local[d] + box.sizes[d] <= other.start_in_local[d] ||
                 other.start_in_local[d] + other.sizes[d] <= box.start_in_local[d];
      require(apart, "two boxes for one place");
    }
  }
}

}  // namespace

bool run_metadata(std::string_view input) {
  static const std::vector<std::vector<checkpoint::Item>> kWanted = {state(0, 1), state(1, 2), state(2, 3)};
  return accepts([&] {
    const checkpoint::Metadata metadata = checkpoint::decode_metadata(std::string(input), ".metadata");
    for (const auto& wanted : kWanted)
      accepts([&] { check_plan(checkpoint::plan_load(metadata, wanted, "the checkpoint"), wanted); });
  });
}

}  // namespace titan::fuzz
