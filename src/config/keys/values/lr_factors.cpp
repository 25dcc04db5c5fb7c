#include "config/keys/values/lr_factors.h"

#include <charconv>
#include <string_view>

#include "base/error.h"

namespace titan::config {
namespace {

constexpr const char* kKey = "optimizer.lr_factors";

}  // namespace

LrFactor parse_lr_factor(const std::string& text) {
  const std::string expected =
      std::string(kKey) + ": expected \"PATTERN=FACTOR\", for example \"tok_embeddings.*=0.1\"; found \"" + text + "\"";
  const auto at = text.rfind('=');
  if (at == std::string::npos || at == 0) throw ConfigError(expected, {kKey});
  LrFactor out{.pattern = text.substr(0, at)};
  const std::string_view number = std::string_view(text).substr(at + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.factor);
  if (error != std::errc() || end != number.data() + number.size() || !(out.factor >= 0 && out.factor <= 1e6))
    throw ConfigError(expected + ": the factor must be a number from 0 to 1e6", {kKey});
  return out;
}

std::vector<Fault> find_wrong_lr_factors(const JobConfig& config) {
  std::vector<Fault> faults;
  for (const std::string& entry : config.optimizer.lr_factors) {
    try {
      parse_lr_factor(entry);
    } catch (const ConfigError& error) {
      faults.push_back({error.what(), error.keys()});
    }
  }
  return faults;
}

}  // namespace titan::config
