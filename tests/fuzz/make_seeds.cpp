// fuzz_make_seeds FOLDER: writes the valid inputs of each target to FOLDER/<target>/.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: fuzz_make_seeds FOLDER\n");
    return 2;
  }
  try {
    for (const auto& target : titan::fuzz::kTargets) {
      const std::filesystem::path folder = std::filesystem::path(arguments[1]) / target.name;
      std::filesystem::create_directories(folder);
      for (const auto& [name, bytes] : target.seeds()) titan::fuzz::write_over(folder / name, bytes);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_make_seeds: %s\n", error.what());
    return 1;
  }
  return 0;
}
