#include <ATen/ATen.h>

#include "checkpoint/dcp/checkpoint_io.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

// Returns true if the folder was loaded, false if it was refused. A load turns every exception of a rank into a
// CheckpointError, so its type alone does not tell a refusal from a finding. Two kinds are refusals: a damaged file,
// and one that holds other items than the wanted ones.
bool load(const std::filesystem::path& folder, const std::vector<checkpoint::Item>& items) {
  OneRank ranks;
  try {
    checkpoint::load(folder, items, ranks);
    return true;
  } catch (const checkpoint::DamagedCheckpoint&) {
    return false;
  } catch (const CheckpointError& error) {
    if (std::string_view(error.what()).find("wanted items do not match the checkpoint") == std::string_view::npos)
      throw Finding(error.what());
    return false;
  }
}

}  // namespace

bool run_folder(std::string_view bytes) {
  static const std::vector<std::vector<checkpoint::Item>> kWanted = {state(0, 1), state(0, 2), state(0, 3)};
  static const MemoryFolder folder;
  Input input(bytes);
  const std::uint64_t ranks = input.number(1) % kWanted.size();
  write_over(folder.path() / ".metadata", input.bytes(input.number(2)));
  write_over(folder.path() / "__0_0.distcp", input.rest());
  return load(folder.path(), kWanted[ranks]);
}

}  // namespace titan::fuzz
