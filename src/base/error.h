// Error types of the program. Each maps to one exit code (base/process/exit_code.h); a message names the thing, what
// was expected, what was found, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace titan {

// Exit codes a scheduler can act on. Documented in README.md.
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitBadInput = 2,      // configuration, command line or input file
  kExitPeerFailed = 3,    // another rank failed or hung, or holds a wrong copy of the weights
  kExitDiverged = 4,      // the loss is NaN or infinite (training.on_nan = "stop")
  kExitSavedRequeue = 75  // a signal asked to stop; a checkpoint is on disk (EX_TEMPFAIL)
};

// Error with an exit code. If it is about configuration keys ("training.steps"), it carries them, the one at fault
// first, and its message is bare: config::with_location() adds the place where the keys were given; without that,
// the program prints "error: " before the message. A message of bad input without keys is printed unchanged.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode exit_code, std::vector<std::string> keys = {})
      : std::runtime_error(message), exit_code_(exit_code), keys_(std::move(keys)) {}
  ExitCode exit_code() const { return exit_code_; }
  const std::vector<std::string>& keys() const { return keys_; }

 private:
  ExitCode exit_code_;
  std::vector<std::string> keys_;
};

// A bad value in a TOML file, on the command line or in the environment.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message, std::vector<std::string> keys = {})
      : Error(message, kExitBadInput, std::move(keys)) {}
};

// A bad data set, tokenizer or other input file.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message, std::vector<std::string> keys = {})
      : Error(message, kExitBadInput, std::move(keys)) {}
};

// A checkpoint that cannot be written, found, read or matched.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, kExitFailed) {}
};

// A process group that cannot be created, or ranks that disagree.
class DistError : public Error {
 public:
  explicit DistError(const std::string& message) : Error(message, kExitFailed) {}
};

// Another rank failed, vanished or hung; this rank only reports it.
class PeerError : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(message, kExitPeerFailed) {}
};

// A wrong call or a broken invariant: a bug in the program or in code that uses it as a library, never bad user input.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(message, kExitFailed) {}
};

namespace detail {
[[noreturn]] void throw_check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace titan

// Checks an invariant of the program itself. `message` is a std::string expression, built only on failure.
#define TITAN_CHECK(condition, message)                                               \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      ::titan::detail::throw_check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
