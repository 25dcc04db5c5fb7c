// Reads numbers from the small files in which the system says what it is and counts (proc(5), cgroups(7)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace titan {

// Returns the number with which the file begins; nullopt if there is no such file, or another word, such as "max".
std::optional<std::int64_t> number_in(const std::string& path);

// Returns the number after `name` in a file of lines "NAME NUMBER", or "NAME NUMBER UNIT", whose unit is left out;
// nullopt if there is none.
std::optional<std::int64_t> number_after(const std::string& path, std::string_view name);

}  // namespace titan
