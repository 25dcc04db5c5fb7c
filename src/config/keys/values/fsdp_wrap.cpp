#include "config/keys/values/fsdp_wrap.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace titan::config {
namespace {

constexpr std::string_view kBlock = "block", kSize = "size:";

[[noreturn]] void fail(const std::string& what) { throw ConfigError(kFsdpWrapKey + what, {kFsdpWrapKey}); }

std::int64_t parse_size(const std::string& entry) {
  const std::string_view digits = trim(std::string_view(entry).substr(kSize.size()));
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || end != digits.data() + digits.size() || size < 1)
    fail(" = \"" + entry + "\": expected size:N with a number of parameters N of 1 or more, such as \"size:1000000\"");
  return size;
}

}  // namespace

FsdpWrap parse_fsdp_wrap(const std::vector<std::string>& value) {
  FsdpWrap wrap;
  for (const std::string& entry : value) wrap.names.emplace_back(trim(entry));
  if (wrap.names.empty()) fail(" is an empty list; use \"block\", \"size:N\", or names of modules");
  for (const std::string& entry : wrap.names) {
    const bool is_size = entry.starts_with(kSize);
    if (entry.empty()) fail(" has an empty name; use \"block\", \"size:N\", or names of modules");
    if (!is_size && entry != kBlock) continue;
    if (wrap.names.size() > 1)
      fail(": \"" + entry +
           "\" is a rule for all modules and cannot stand beside other entries; use it alone, or name " +
           "modules only");
    wrap.kind = is_size ? FsdpWrap::Kind::kSize : FsdpWrap::Kind::kBlock;
    if (is_size) wrap.min_parameters = parse_size(entry);
    wrap.names.clear();
    return wrap;
  }
  wrap.kind = FsdpWrap::Kind::kNames;
  return wrap;
}

}  // namespace titan::config
