// The text of a TOML file, where each value came from, and messages that point there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace titan::config {

// From 1. Columns count characters, not bytes.
struct Position {
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  auto operator<=>(const Position&) const = default;
};

class Source {
 public:
  // `order`: of reading; messages about several files are sorted by it.
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

// Where a value that is not a default was given.
struct Origin {
  std::shared_ptr<const Source> source;  // null: not a file
  Position at;
  std::string where;  // not a file: "environment" or "command line", and the variable's name or the flag as typed
  std::string name;

  // "configs/debug.toml:12", "TITAN_TRAINING__STEPS", "--training.steps"
  std::string place() const;
};

// By key. A key that is not there has its default.
using Origins = std::map<std::string, Origin>;

// What is wrong with one key or several.
struct Fault {
  std::string message;            // names the keys in full
  std::vector<std::string> keys;  // of job_config.h, the one at fault first
};

// "KEY: MESSAGE", about that key before those of the error.
Fault below_key(const std::string& key, const Error& error);

// The message at the place where the first key that is not a default was given, and with the places of the others:
//   run.toml:3:11: error: training.seq_len (7) must be a multiple of 2 * parallelism.tensor_parallel_degree (1) ...
//      3 | seq_len = 7
//        |           ^
//        = parallelism.tensor_parallel_degree is set by --parallelism.tensor_parallel_degree
std::string at_its_place(const Fault& fault, const Origins& origins);
std::string at_its_place(const Error& error, const Origins& origins);

// Throws ConfigError with all of `errors`, each of them whole.
void throw_if_wrong(const std::vector<std::string>& errors);

}  // namespace titan::config
