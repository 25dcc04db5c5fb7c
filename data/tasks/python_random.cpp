#include "data/tasks/python_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <set>

#include "base/error.h"

namespace titan::data {
namespace {

constexpr std::size_t kWords = std::mt19937::state_size;

// Returns the state that init_by_array() of the Mersenne Twister's authors (M. Matsumoto, T. Nishimura, 2002) makes of
// a key of one word.
std::array<std::uint32_t, kWords> state_of_key(std::uint32_t key) {
  std::array<std::uint32_t, kWords> state{};
  state[0] = 19650218;
  const auto mixed = [&](std::size_t i) { return state[i - 1] ^ (state[i - 1] >> 30); };
  for (std::size_t i = 1; i < kWords; ++i) state[i] = 1812433253 * mixed(i) + static_cast<std::uint32_t>(i);
  std::size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state[0] = state[kWords - 1];
    i = 1;
  };
  for (std::size_t n = 0; n < kWords; ++n, advance()) state[i] = (state[i] ^ (mixed(i) * 1664525)) + key;
  for (std::size_t n = 1; n < kWords; ++n, advance())
    state[i] = (state[i] ^ (mixed(i) * 1566083941)) - static_cast<std::uint32_t>(i);
  state[0] = std::uint32_t{1} << 31;
  return state;
}

// Gives std::mt19937 its words of state as they are.
struct State {
  using result_type = std::uint32_t;
  std::array<std::uint32_t, kWords> words;

  template <typename Iterator>
  void generate(Iterator begin, Iterator /*end*/) {
    std::ranges::copy(words, begin);
  }
};

std::mt19937 seeded(std::uint32_t seed) {
  State state{state_of_key(seed)};
  return std::mt19937(state);
}

// Returns how large a set with `count` numbers is in Python's estimate, in units of a list's element. A smaller
// population is drawn from a list of what is left, and a larger one with a set of what is taken.
std::size_t size_of_set(std::size_t count) {
  std::size_t size = 21, table = 1;
  if (count <= 5) return size;
  while (table < 3 * count) table *= 4;
  return size + table;
}

}  // namespace

PythonRandom::PythonRandom(std::uint32_t seed) : bits_(seeded(seed)) {}

// Draws as many bits as `limit` has until they are below it.
std::size_t PythonRandom::below(std::size_t limit) {
  const int width = std::bit_width(limit);
  TITAN_CHECK(width >= 1 && width <= 32, "a limit of " + std::to_string(limit));
  std::size_t drawn = limit;
  while (drawn >= limit) drawn = static_cast<std::size_t>(bits_()) >> (32 - width);
  return drawn;
}

std::vector<std::size_t> PythonRandom::sample(std::size_t population, std::size_t count) {
  TITAN_CHECK(count <= population, std::to_string(count) + " of " + std::to_string(population));
  std::vector<std::size_t> out;
  if (population <= size_of_set(count)) {
    std::vector<std::size_t> left(population);
    std::iota(left.begin(), left.end(), std::size_t{0});
    while (out.size() < count) {
      const std::size_t at = below(left.size());
      out.push_back(left[at]);
      left[at] = left.back();
      left.pop_back();
    }
    return out;
  }
  std::set<std::size_t> taken;
  while (out.size() < count)
    if (const std::size_t drawn = below(population); taken.insert(drawn).second) out.push_back(drawn);
  return out;
}

}  // namespace titan::data
