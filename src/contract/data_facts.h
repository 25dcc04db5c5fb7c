// Tells the engine what it must know of a run's training data, which itself stays with the application.
#pragma once

#include <functional>
#include <string>

namespace titan {

struct DataFacts {
  std::string files;  // tells the data from others; kept in checkpoints; "" where nothing is known
  // Returns what differs between two such texts, in words; "" for the same data. Null where `files` is "".
  std::function<std::string(const std::string& before, const std::string& now)> differences;
};

}  // namespace titan
