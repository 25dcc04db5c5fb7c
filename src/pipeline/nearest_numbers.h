// Texts with the numbers nearest to a wrong one, for messages about keys that must divide each other. No torch.
#pragma once

#include <cstdint>
#include <string>

namespace titan::pipeline {

// Returns the multiples of `step` around `number`, which is none: "6 or 9"; "3" if there is none below.
std::string nearest_multiples(std::int64_t number, std::int64_t step);

// Returns the divisors of `number` around `wanted`, which is none: "2 or 4"; "8 at most" if there is none above.
std::string nearest_divisors(std::int64_t number, std::int64_t wanted);

}  // namespace titan::pipeline
