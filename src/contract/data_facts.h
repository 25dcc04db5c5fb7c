// Facts about a run's data that the engine needs; the data itself stays in the application.
#pragma once

#include <functional>
#include <string>

namespace titan {

struct DataFacts {
  // Identifies the training data. Saved in checkpoints; "" if unknown.
  std::string files;
  // Identifies the held-out data; "" also if there are none.
  std::string held_out_files;
  // Returns the differences between two such texts, in words; "" if the data is the same. Null if
  // both texts above are "".
  std::function<std::string(const std::string& before, const std::string& now)> differences;
};

}  // namespace titan
