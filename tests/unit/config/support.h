// Helpers of the configuration tests.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/load.h"
#include "tests/support/message_of.h"

namespace titan::config {

inline CommandLine parse(const std::vector<std::string>& args) { return parse_command_line(args); }

inline LoadedConfig load(const std::string& toml, const std::vector<std::string>& args = {}) {
  return load_job_config_text(toml, "t.toml", parse(args));
}

// Returns the text of the ConfigError that `action` throws, or "no error".
template <class Action>
std::string error_of(Action action) {
  return test::message_of<ConfigError>(action);
}

inline std::vector<std::string> messages_of(const std::vector<Fault>& faults) {
  std::vector<std::string> messages;
  for (const Fault& fault : faults) messages.push_back(fault.message);
  return messages;
}

inline std::string load_error(const std::string& toml, const std::vector<std::string>& args = {}) {
  return error_of([&] { load(toml, args); });
}

}  // namespace titan::config
