// The text of a TOML file, the origins of values, and messages that point to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace titan::config {

// 1-based. Columns count characters, not bytes.
struct Position {
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  auto operator<=>(const Position&) const = default;
};

class Source {
 public:
  // `order`: position in the order of reading, by which messages about several files are sorted.
  Source(std::string name, std::string_view text, int order = 0);

  const std::string& name() const { return name_; }
  int order() const { return order_; }

  //   configs/debug.toml:12:9: error: training.steps: expected an integer, at least 1; found 0
  //     12 | steps = 0
  //        |         ^
  std::string error(Position at, const std::string& message) const;

 private:
  std::string name_;
  std::vector<std::string> lines_;
  int order_;
};

// Origin of a value that is not a default.
struct Origin {
  std::shared_ptr<const Source> source;  // null if not from a file
  Position at;
  std::string where;  // if not from a file: "environment" or "command line"; name: the variable or the flag as typed
  std::string name;

  // "configs/debug.toml:12", "TITAN_TRAINING__STEPS", "--training.steps"
  std::string place() const;
};

// Origins by key. A key that is not in the map has its default.
using Origins = std::map<std::string, Origin>;

// An error about one or several keys.
struct Fault {
  std::string message;            // names the keys in full
  std::vector<std::string> keys;  // keys of job_config.h, the one at fault first
};

// "KEY: MESSAGE", with that key before those of the error.
Fault below_key(const std::string& key, const Error& error);

// Returns the message at the place where the first non-default key was given, and the places of the other keys:
//   run.toml:3:11: error: training.seq_len (7) must be a multiple of 2 * parallelism.tensor_parallel_degree (1) ...
//      3 | seq_len = 7
//        |           ^
//        = parallelism.tensor_parallel_degree is set by --parallelism.tensor_parallel_degree
std::string with_location(const Fault& fault, const Origins& origins);
std::string with_location(const Error& error, const Origins& origins);

// Throws ConfigError with all of `errors` in full.
void throw_if_wrong(const std::vector<std::string>& errors);

}  // namespace titan::config
