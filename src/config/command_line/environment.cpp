#include "config/command_line/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "config/keys/renamed.h"
#include "config/keys/suggest.h"

namespace titan::config {
namespace {

constexpr std::string_view kVariablePrefix = "TITAN_";

std::string key_of(std::string_view variable) {
  std::string key;
  for (std::size_t i = kVariablePrefix.size(); i < variable.size(); ++i) {
    if (variable.substr(i).starts_with("__")) {
      key += '.';
      ++i;
    } else {
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(variable[i])));
    }
  }
  return key;
}

std::string unknown(const std::string& key) {
  if (const auto hint = renamed_hint(key)) return *hint;
  std::vector<std::string> names;
  for (const std::string& near : likely_keys(key)) names.push_back(variable_of(near));
  return "there is no key " + key + (names.empty() ? "; --help lists all keys" : did_you_mean(names));
}

}  // namespace

Environment titan_variables() {
  Environment out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals + 1 == text.size()) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with(kVariablePrefix)) out.emplace_back(name, text.substr(equals + 1));
  }
  return out;
}

bool names_a_key(std::string_view variable) {
  return variable.starts_with(kVariablePrefix) && variable.find("__", kVariablePrefix.size()) != std::string_view::npos;
}

std::string variable_of(std::string_view key) {
  std::string out(kVariablePrefix);
  for (const char c : key) {
    if (c == '.') {
      out += "__";
    } else {
      out += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

std::vector<Override> parse_environment(const Environment& environment, std::vector<std::string>& errors) {
  std::vector<Override> out;
  Environment sorted = environment;
  std::ranges::sort(sorted);
  for (const auto& [name, text] : sorted) {
    if (!names_a_key(name)) continue;
    const std::string begin = "environment: error: " + name + ": ";
    const std::string key = key_of(name);
    const Field* field = find_field(key);
    if (!field) {
      errors.push_back(begin + unknown(key));
      continue;
    }
    if (key == "job.config_file") {
      errors.push_back(begin + "a variable cannot name the configuration file; use --config " + text);
      continue;
    }
    std::string expected;
    if (const auto value = parse_text(*field, text, expected)) {
      out.push_back({key, *value, name});
    } else {
      errors.push_back(begin + "expected " + expected + "; found \"" + text + "\"");
    }
  }
  return out;
}

}  // namespace titan::config
