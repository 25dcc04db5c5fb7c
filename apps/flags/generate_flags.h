// Flags of `titan-train generate`. No torch: completion and --help work without the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct GenerateFlags {
  std::string checkpoint, config, tokenizer;
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<std::int64_t> context;
  std::optional<std::string> prompt;
  std::string prompts, out;
  std::int64_t batch = 1;  // rows that the model continues together
  bool interactive = false;
  bool chat = false;
  std::optional<std::string> system;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 128;
  std::int64_t num = 1;
  double temperature = 1.0;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<std::uint64_t> seed;
  bool json = false;
  std::optional<std::int64_t> logprobs;  // how many of the likeliest tokens
  bool quiet = false;
  std::optional<std::int64_t> nproc;
  bool oversubscribe = false;
  std::int64_t tensor_parallel = 1;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, GenerateFlags& flags);

}  // namespace titan
