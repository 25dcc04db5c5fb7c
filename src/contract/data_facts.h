// Tells the engine what it must know of a run's data, which itself stays with the application.
#pragma once

#include <functional>
#include <string>

namespace titan {

struct DataFacts {
  // Tells the training data from others. Kept in checkpoints; "" where nothing is known.
  std::string files;
  // The same of the held-out data; "" also where there are none.
  std::string held_out_files;
  // Returns what differs between two such texts, in words; "" for the same data. Null where both are "".
  std::function<std::string(const std::string& before, const std::string& now)> differences;
};

}  // namespace titan
