// Whether a checkpoint is whole.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace titan::checkpoint {

// What is wrong with a checkpoint.
struct Fault {
  std::string file;  // that it was found in; "" when it is of no one file
  std::string text;
};

// Reads everything that `path` (a checkpoint) holds, in small blocks: files against their checksums, every stored
// record against its own, boxes against the tensors that they make up, descriptions against .metadata. Gives all faults
// that are found; none when the checkpoint is whole.
std::vector<Fault> verify_checkpoint(const std::filesystem::path& path);

}  // namespace titan::checkpoint
