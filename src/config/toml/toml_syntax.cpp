#include "config/toml/toml_syntax.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/text.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

constexpr std::array<std::string_view, 11> kTypographicQuotes = {"“", "”", "„", "‟", "‘", "’", "‚", "«", "»", "‹", "›"};

std::string line_at(std::string_view text, std::uint32_t number) {
  const auto lines = split(text, '\n');
  return number == 0 || number > lines.size() ? "" : lines[number - 1];
}

std::string without_comment(std::string_view value) { return std::string(trim(value.substr(0, value.find('#')))); }

bool is_name(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
}

std::optional<std::string_view> typographic_quote(std::string_view text) {
  for (const std::string_view quote : kTypographicQuotes)
    if (text.find(quote) != std::string_view::npos) return quote;
  return std::nullopt;
}

std::string without_typographic_quotes(std::string text) {
  for (const std::string_view quote : kTypographicQuotes)
    for (auto at = text.find(quote); at != std::string::npos; at = text.find(quote)) text.erase(at, quote.size());
  return text;
}

std::string quoted(const std::string& text) { return to_toml_value(FieldValue(text)); }

// "lr: 4e-3", "sweep:"
std::optional<std::string> yaml_message(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string name(trim(line.substr(0, colon)));
  if (name.starts_with("- ")) name = trim(name.substr(2));
  if (!is_name(name)) return std::nullopt;
  const std::string value = without_comment(line.substr(colon + 1));
  return "this is YAML, and a TOML file is expected; write " +
         (value.empty() ? "[" + name + "]" : name + " = " + value);
}

// Handles a value of one or more bare words.
std::optional<std::string> bare_word_message(const std::string& value) {
  const bool is_bare = std::ranges::all_of(value, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./~+ ").find(c) != std::string::npos;
  });
  const bool has_letter = std::ranges::any_of(value, [](unsigned char c) { return std::isalpha(c); });
  if (!is_bare || !has_letter) return std::nullopt;
  std::string lower = value;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "true" || lower == "yes" || lower == "on")
    return "expected true or false; found " + value + "; write true";
  if (lower == "false" || lower == "no" || lower == "off")
    return "expected true or false; found " + value + "; write false";
  if (lower == "none" || lower == "null")
    return value + " is not a value of TOML; write \"None\" to unset a key that may be unset, or leave it out";
  return value + " is not a value of TOML; if it is a string, write it in quotes: " + quoted(value);
}

// If the parser stopped before the value, the mistake is further up: a list that is not closed.
std::optional<std::string> value_message(std::string_view line, std::uint32_t column) {
  const auto equals = line.find('=');
  if (equals == std::string_view::npos || !is_name(trim(line.substr(0, equals))) || column < equals + 2)
    return std::nullopt;
  const std::string value = without_comment(line.substr(equals + 1));
  if (const auto quote = typographic_quote(value.substr(0, 4)))
    return std::string(*quote) + " is a typographic quote; write plain ones: " +
           (value.starts_with("[") ? "\"...\"" : quoted(without_typographic_quotes(value)));
  return bare_word_message(value);
}

}  // namespace

std::string syntax_message(std::string_view description, std::string_view text, Position at) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  if (description.find("unescaped control characters") != std::string_view::npos)
    return "the string does not end on its line; close its quote";
  if (const auto found = description.find("cannot redefine existing "); found != std::string_view::npos)
    return "a second " + std::string(description.substr(found + 25)) + "; leave one of them";
  const std::string line = line_at(text, at.line);
  if (auto message = value_message(line, at.column)) return *message;
  if (line.find('=') == std::string::npos)
    if (auto message = yaml_message(line)) return *message;
  if (description.starts_with(kPrefix)) description.remove_prefix(kPrefix.size());
  return "not TOML: " + std::string(description);
}

}  // namespace titan::config
