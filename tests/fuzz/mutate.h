// Makes broken inputs of valid ones: deterministic, and without knowledge of the code that reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace titan::fuzz {

// Words of a format, and pairs that enclose other text in it ("[" and "]").
struct Dictionary {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> brackets;
};

// Returns the dictionary of that name (Target::words). Throws std::invalid_argument for an unknown name.
const Dictionary& dictionary(std::string_view name);

class Mutator {
 public:
  // `inputs`: those to change, at least one. Both must outlive this.
  Mutator(const std::vector<std::string>& inputs, const Dictionary& words) : inputs_(inputs), words_(words) {}

  // Returns one of the inputs after one to six changes; the same for the same numbers. It flips bits, cuts, duplicates
  // and inserts bytes and words, joins two inputs, puts extreme numbers in the place of numbers (as text and as bytes),
  // and nests a part in up to 100,000 brackets.
  std::string make(std::uint64_t seed, std::uint64_t number) const;

 private:
  const std::vector<std::string>& inputs_;
  const Dictionary& words_;
};

}  // namespace titan::fuzz
