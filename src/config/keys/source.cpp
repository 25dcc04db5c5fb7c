#include "config/keys/source.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

bool is_key_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

}  // namespace

Source::Source(std::string name, std::string_view text, int order)
    : name_(std::move(name)), lines_(split(text, '\n')), order_(order) {}

std::string Source::error(Position at, const std::string& message) const {
  const std::string line_number = std::to_string(at.line);
  std::string out = name_ + ":" + line_number + ":" + std::to_string(at.column) + ": error: " + message;
  if (at.line == 0 || at.line > lines_.size()) return out;
  std::string line = lines_[at.line - 1];
  if (line.ends_with('\r')) line.pop_back();
  const std::string gutter(std::max<std::size_t>(line_number.size(), 4), ' ');
  out += "\n" + std::string(gutter.size() - line_number.size(), ' ') + line_number + " | " + line;
  out += "\n" + gutter + " | ";
  for (std::size_t i = 0, column = 1; i < line.size() && column < at.column; ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) continue;  // inside a character
    out += line[i] == '\t' ? '\t' : ' ';
    ++column;
  }
  return out + "^";
}

std::string Origin::place() const { return source ? source->name() + ":" + std::to_string(at.line) : name; }

std::vector<std::string> keys_in(std::string_view message) {
  std::vector<std::string> keys;
  for (std::size_t at = 0; at < message.size();) {
    if (!is_key_character(message[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < message.size() && is_key_character(message[at])) ++at;
    std::string_view word = message.substr(begin, at - begin);
    if (word.ends_with('.')) word.remove_suffix(1);  // a full stop
    if (find_field(word) && std::ranges::count(keys, word) == 0) keys.emplace_back(word);
  }
  return keys;
}

std::string at_its_place(const std::string& message, const Origins& origins) {
  std::string out, notes;
  for (const std::string& key : keys_in(message)) {
    const auto it = origins.find(key);
    if (it == origins.end()) continue;
    const Origin& origin = it->second;
    if (out.empty()) {
      // A flag's or a variable's name says the key already.
      const bool is_said = !origin.source && message.starts_with(key + ": ");
      out = origin.source ? origin.source->error(origin.at, message)
                          : origin.where + ": error: " + origin.name + ": " +
                                (is_said ? message.substr(key.size() + 2) : message);
    } else {
      notes += "\n     = " + key + " is set " + (origin.source ? "in " : "by ") + origin.place();
    }
  }
  return (out.empty() ? "error: " + message : out) + notes;
}

}  // namespace titan::config
