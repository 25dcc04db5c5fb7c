// Verifies that a checkpoint is intact.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace titan::checkpoint {

// One fault of a checkpoint.
struct Fault {
  std::string file;  // file with the fault; empty if it does not belong to one file
  std::string text;
};

// Reads the full checkpoint at `path` in small blocks and compares files with their checksums, every stored record with
// its own, boxes with the tensors that they make up, and descriptions with .metadata. Returns all faults; empty if the
// checkpoint is intact.
std::vector<Fault> verify_checkpoint(const std::filesystem::path& path);

}  // namespace titan::checkpoint
