// Parses the ranks that a key or a flag names: "all", or numbers and ranges, "0,4-7".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace titan::config {

class RankList {
 public:
  // Throws ConfigError without a key if `text` is neither.
  explicit RankList(const std::string& text);

  bool contains(std::int64_t rank) const;
  // Returns the highest rank named; -1 for "all".
  std::int64_t highest() const;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // first and last; empty: all ranks
};

}  // namespace titan::config
