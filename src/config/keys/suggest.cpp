#include "config/keys/suggest.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

std::string last_part(std::string_view key) { return std::string(key.substr(key.rfind('.') + 1)); }

// Spells a name like a key: lower case, with underscores.
std::string spelled_as_key(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

StringList keys_with_last_part(const std::string& part) {
  StringList useful, all;
  for (const Field& field : fields()) {
    if (last_part_of(field) != part) continue;
    all.push_back(field.key);
    if (field.status.support == Support::kSupported) useful.push_back(field.key);
  }
  return useful.empty() ? all : useful;
}

}  // namespace

std::vector<std::string> likely_keys(std::string_view name) {
  const std::string wanted = spelled_as_key(name);
  const auto near = nearest_name(wanted, field_names());
  const StringList same_part = keys_with_last_part(last_part(wanted));
  // The table is misspelled, not the key.
  if (near && std::ranges::count(same_part, *near) > 0 && wanted.find('.') != std::string::npos) return {*near};
  if (!same_part.empty()) return same_part;
  if (near) return {*near};
  constexpr std::size_t kShortest = 4;  // two edits turn any shorter name into "lr"
  if (last_part(wanted).size() < kShortest) return {};
  StringList parts;
  for (const Field& field : fields()) parts.push_back(last_part_of(field));
  const auto near_part = nearest_name(last_part(wanted), parts);
  return near_part ? keys_with_last_part(*near_part) : StringList{};
}

std::string did_you_mean(std::span<const std::string> candidates, std::string_view prefix) {
  if (candidates.empty()) return {};
  StringList names;
  for (const std::string& candidate : candidates) names.push_back(std::string(prefix) + candidate);
  const std::string last = names.back();
  names.pop_back();
  return "; did you mean " + (names.empty() ? "" : join(names, ", ") + " or ") + last + "?";
}

}  // namespace titan::config
