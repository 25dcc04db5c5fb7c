#include "apps/exit_code.h"

#include <exception>
#include <iostream>
#include <string>

#include "base/env.h"
#include "base/error.h"

namespace titan {
namespace {

// Messages about input stand alone, as a compiler's do. What fails later, fails on one rank, which names itself.
void print_error(const Error& error) {
  const auto rank =
      get_env("RANK").value_or(get_env("OMPI_COMM_WORLD_RANK").value_or(get_env("SLURM_PROCID").value_or("0")));
  if (error.exit_code() == kExitBadInput) {
    std::cerr << error.what() << std::endl;
  } else {
    std::cerr << "titan-train: rank " << rank << ": " << error.what() << std::endl;
  }
}

}  // namespace

int exit_code_of(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    print_error(error);
    return error.exit_code();
  } catch (const std::exception& error) {
    print_error(Error(std::string(error.what()), kExitFailed));
    return kExitFailed;
  }
}

}  // namespace titan
