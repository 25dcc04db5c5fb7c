#include "base/process/exit_code.h"

#include <exception>
#include <iostream>
#include <string>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/limits/system_limits.h"
#include "base/process/program_name.h"
#include "base/process/speaks.h"
#include "base/utf8.h"

namespace titan {
namespace {

// Returns "rank 3: " in a process that a launcher started, else "".
std::string name_of_rank() {
  try {
    const LaunchEnv launch = detect_launch();
    return launch.launcher == Launcher::kAlone ? "" : "rank " + std::to_string(launch.rank) + ": ";
  } catch (const ConfigError&) {
    return "";  // the variables contradict each other; another message reports that
  }
}

// Errors in input look like a compiler's ("error: ..."). Later failures happen on one rank of several, so their
// messages name the program and the rank.
void print_error(const Error& error, bool may_be_rank) {
  std::string who = error.keys().empty() ? "" : "error: ";
  if (error.exit_code() != kExitBadInput)
    who = std::string(program_name()) + ": " + (may_be_rank ? name_of_rank() : "");
  std::cerr << who << printable(message_of_error(error)) << std::endl;
}

}  // namespace

int exit_code_of(const std::function<int()>& body, bool may_be_rank, std::chrono::milliseconds patience) {
  try {
    return body();
  } catch (const AlreadyReported& error) {
    std::this_thread::sleep_for(patience);
    print_error(error, may_be_rank);
    return error.exit_code();
  } catch (const Error& error) {
    print_error(error, may_be_rank);
    return error.exit_code();
  } catch (const std::exception& error) {
    print_error(Error(std::string(error.what()), kExitFailed), may_be_rank);
    return kExitFailed;
  } catch (...) {
    print_error(Error(kNotAnException, kExitFailed), may_be_rank);
    return kExitFailed;
  }
}

}  // namespace titan
