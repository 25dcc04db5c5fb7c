#include "apps/exit_code.h"

#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "base/env.h"
#include "base/error.h"

namespace titan {
namespace {

std::optional<std::string> rank_of_launcher() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (auto rank = get_env(name)) return rank;
  return std::nullopt;
}

// Messages about input stand alone, as a compiler's do. What fails later, fails on one rank of several, which names
// itself.
void print_error(const Error& error, bool may_be_rank) {
  const auto rank = may_be_rank ? rank_of_launcher() : std::nullopt;
  std::string who;
  if (error.exit_code() != kExitBadInput) who = "titan-train: " + (rank ? "rank " + *rank + ": " : "");
  std::cerr << who << error.what() << std::endl;
}

}  // namespace

int exit_code_of(const std::function<int()>& body, bool may_be_rank) {
  try {
    return body();
  } catch (const Error& error) {
    print_error(error, may_be_rank);
    return error.exit_code();
  } catch (const std::exception& error) {
    print_error(Error(std::string(error.what()), kExitFailed), may_be_rank);
    return kExitFailed;
  }
}

}  // namespace titan
