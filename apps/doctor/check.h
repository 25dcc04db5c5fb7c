// A single result of titan-train doctor: a name, a state, and what to do if something is wrong.
#pragma once

#include <string>
#include <vector>

namespace titan::doctor {

enum class State { kOk, kWarning, kFailure };  // a warning: training works, but slowly, or not in every case

struct Check {
  std::string name;  // "open files"
  State state = State::kOk;
  std::string found;        // "1,024"
  std::string advice = {};  // advice to the user; empty if all is well

  bool operator==(const Check&) const = default;
};

using Checks = std::vector<Check>;

inline Check ok(std::string name, std::string found) { return {std::move(name), State::kOk, std::move(found)}; }
inline Check warning(std::string name, std::string found, std::string advice) {
  return {std::move(name), State::kWarning, std::move(found), std::move(advice)};
}
inline Check failure(std::string name, std::string found, std::string advice) {
  return {std::move(name), State::kFailure, std::move(found), std::move(advice)};
}

}  // namespace titan::doctor
