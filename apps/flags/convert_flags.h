// Flags of `titan-train convert`. No torch: completion and --help work without the engine.
#pragma once

#include <string>

#include "apps/flags/parse_command.h"

namespace titan {

// Values of --names: the names of TorchTitan 0.2.2, which are ours, and those of its main branch.
inline constexpr const char* kNames[] = {"torchtitan", "torchtitan-main"};

struct ConvertFlags {
  std::string source;
  std::string target;
  std::string to;
  std::string dtype = "same";
  std::string names = kNames[0];
  std::string config;
  std::string model_name = "llama3";
  std::string model_flavor;
  std::string tokenizer;
  bool merge = false;
  bool overwrite = false;
  bool may_overflow = false;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, ConvertFlags& flags);

}  // namespace titan
