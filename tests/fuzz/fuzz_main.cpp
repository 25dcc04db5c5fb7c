// libFuzzer's entry points, linked once for each target. The target is the part of the program's name after "fuzz_".
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {

const titan::fuzz::Target* chosen = nullptr;

const titan::fuzz::Target* target_of(std::string_view program) {
  program.remove_prefix(std::min(program.rfind('/') + 1, program.size()));
  for (const auto& target : titan::fuzz::kTargets)
    if (program == std::string("fuzz_") + target.name) return &target;
  return nullptr;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
  chosen = target_of((*arguments)[0]);
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "%s is named after no fuzz target\n", (*arguments)[0]);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
