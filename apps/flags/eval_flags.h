// Flags of `titan-train eval`. No torch: completion, --help and the launcher work without the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags/parse_command.h"

namespace titan {

struct EvalFlags {
  std::string path, config, tokenizer;
  std::vector<std::string> tasks;
  std::optional<std::int64_t> limit;
  std::int64_t num_fewshot = 0;
  std::int64_t batch_size = 8;
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<std::int64_t> context;
  std::string log_likelihoods;
  std::optional<std::int64_t> nproc;
  bool oversubscribe = false;
  bool json = false;
  bool quiet = false;
};

// Declares help, arguments and flags on `app`. Parsing writes to `flags`, which must outlive `app`.
void declare(CLI::App& app, EvalFlags& flags);

}  // namespace titan
