// Makes a sweep without a file: `titan-train sweep --grid optimizer.lr=1e-3,1e-2 --config job.toml`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace titan::sweep {

struct GridWords {
  std::vector<std::string> grid;  // "optimizer.lr=1e-3,1e-2" each
  std::string config;             // the job's file
  std::string folder;             // of the sweep; empty: outputs/sweeps/ plus a name made of the job's and the keys'
  std::optional<std::int64_t> nproc;
  std::optional<std::string> objective;  // sweep.objective
};

struct SweepFile {
  std::filesystem::path path;  // in the sweep's folder
  std::string text;
};

// Returns the sweep's file that corresponds to the words; its paths are absolute, so that it works
// from any folder. Writes nothing. Throws ConfigError with all errors.
SweepFile sweep_file_of(const GridWords& words);

}  // namespace titan::sweep
