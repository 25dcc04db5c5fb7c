// Random numbers of Python's random.Random, for choices that must equal those of a program in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace titan::data {

// The Mersenne Twister, seeded and used as in CPython 3 (Modules/_randommodule.c, Lib/random.py).
class PythonRandom {
 public:
  // Starts as random.Random(seed).
  explicit PythonRandom(std::uint32_t seed);

  // Returns what random.sample(range(population), count) returns: distinct numbers below `population`, in random order.
  // `count` must be at most `population`.
  std::vector<std::size_t> sample(std::size_t population, std::size_t count);

 private:
  std::size_t below(std::size_t limit);

  std::mt19937 bits_;
};

}  // namespace titan::data
