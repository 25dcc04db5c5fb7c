#include "config/keys/source.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/utf8.h"

namespace titan::config {

Source::Source(std::string name, std::string_view text, int order)
    : name_(std::move(name)), lines_(split(text, '\n')), order_(order) {}

std::string Source::error(Position at, const std::string& message) const {
  const std::string line_number = std::to_string(at.line);
  std::string out = name_ + ":" + line_number + ":" + std::to_string(at.column) + ": error: " + message;
  if (at.line == 0 || at.line > lines_.size()) return out;
  std::string line = escape_invalid_utf8(lines_[at.line - 1]);
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

Fault below_key(const std::string& key, const Error& error) {
  Fault fault{key + ": " + error.what(), {key}};
  fault.keys.insert(fault.keys.end(), error.keys().begin(), error.keys().end());
  return fault;
}

std::string with_location(const Fault& fault, const Origins& origins) {
  std::string out, notes;
  std::set<std::string> seen;
  for (const std::string& key : fault.keys) {
    const auto it = origins.find(key);
    if (it == origins.end() || !seen.insert(key).second) continue;
    const Origin& origin = it->second;
    if (out.empty()) {
      // The name of a flag or variable already says the key.
      const bool is_said = !origin.source && fault.message.starts_with(key + ": ");
      out = origin.source ? origin.source->error(origin.at, fault.message)
                          : origin.where + ": error: " + origin.name + ": " +
                                (is_said ? fault.message.substr(key.size() + 2) : fault.message);
    } else {
      notes += "\n     = " + key + " is set " + (origin.source ? "in " : "by ") + origin.place();
    }
  }
  return (out.empty() ? "error: " + fault.message : out) + notes;
}

std::string with_location(const Error& error, const Origins& origins) {
  return with_location(Fault{error.what(), error.keys()}, origins);
}

void throw_if_wrong(const std::vector<std::string>& errors) {
  if (errors.empty()) return;
  const std::string count = errors.size() > 1 ? "\n" + std::to_string(errors.size()) + " errors" : "";
  throw ConfigError(join(errors, "\n") + count);
}

}  // namespace titan::config
