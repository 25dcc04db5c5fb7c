#include "data/chat/jinja/values/python_text.h"

#include <algorithm>
#include <charconv>

#include "data/chat/jinja/values/template_value.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

bool contains_point(std::string_view text, char32_t wanted) {
  for (std::size_t at = 0; at < text.size();)
    if (next_code_point(text, at) == wanted) return true;
  return false;
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  if (side != Side::kRight) {
    for (std::size_t at = 0; at < text.size();) {
      if (!drop(next_code_point(text, at))) break;
      text.remove_prefix(at);
      at = 0;
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty() && drop(previous_code_point(text, text.size()))) {
      std::size_t end = text.size() - 1;
      while (is_continuation(text[end])) --end;
      text = text.substr(0, end);
    }
  }
  return text;
}

// Returns the length in bytes of the line end at `at`, or 0.
std::size_t line_end(std::string_view text, std::size_t at) {
  if (text.substr(at).starts_with("\r\n")) return 2;
  std::size_t next = at;
  switch (next_code_point(text, next)) {
    case '\n':
    case '\r':
    case 0x0B:
    case 0x0C:
    case 0x1C:
    case 0x1D:
    case 0x1E:
    case 0x85:
    case 0x2028:
    case 0x2029:
      return next - at;
    default:
      return 0;
  }
}

// Returns the digits of a number without the underscores between them; nullopt if one is at another place.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

bool is_python_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

std::size_t count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, is_continuation));
}

std::string_view characters(std::string_view text, std::size_t from, std::size_t count) {
  const auto skip = [&](std::size_t at, std::size_t number) {
    for (; number > 0 && at < text.size(); --number) next_code_point(text, at);
    return at;
  };
  const std::size_t begin = skip(0, from);
  return text.substr(begin, skip(begin, count) - begin);
}

Pieces all_characters(std::string_view text) {
  Pieces pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    next_code_point(text, at);
    pieces.push_back(text.substr(from, at - from));
  }
  return pieces;
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_python_space); }

std::string_view strip(std::string_view text, Side side, std::string_view of) {
  return strip_if(text, side, [&](char32_t point) { return contains_point(of, point); });
}

Pieces split_words(std::string_view text, std::ptrdiff_t limit, bool from_right) {
  const auto is_space_at = [&](std::size_t at) { return is_python_space(next_code_point(text, at)); };
  Pieces words;
  while (true) {
    text = strip(text, from_right ? Side::kRight : Side::kLeft);
    if (text.empty()) break;
    if (limit >= 0 && static_cast<std::ptrdiff_t>(words.size()) == limit) {
      words.push_back(text);  // keeps the white space at its other end
      break;
    }
    check_weight(words.size() * sizeof(Value));
    std::size_t at = from_right ? text.size() : 0;
    if (from_right) {
      while (at > 0 && !is_python_space(previous_code_point(text, at))) do
          --at;
        while (is_continuation(text[at]));
      words.push_back(text.substr(at));
      text = text.substr(0, at);
    } else {
      while (at < text.size() && !is_space_at(at)) next_code_point(text, at);
      words.push_back(text.substr(0, at));
      text.remove_prefix(at);
    }
  }
  if (from_right) std::ranges::reverse(words);
  return words;
}

Pieces split(std::string_view text, std::string_view separator, std::ptrdiff_t limit, bool from_right) {
  Pieces pieces;
  while (limit < 0 || static_cast<std::ptrdiff_t>(pieces.size()) < limit) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    check_weight(pieces.size() * sizeof(Value));
    if (from_right) {
      pieces.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      pieces.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
  }
  pieces.push_back(text);
  if (from_right) std::ranges::reverse(pieces);
  return pieces;
}

Pieces split_lines(std::string_view text, bool keep_ends) {
  Pieces lines;
  std::size_t from = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = line_end(text, at);
    if (end == 0) {
      next_code_point(text, at);
      continue;
    }
    lines.push_back(text.substr(from, at - from + (keep_ends ? end : 0)));
    at += end;
    from = at;
  }
  if (from < text.size()) lines.push_back(text.substr(from));
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view replacement, std::ptrdiff_t limit) {
  std::string out;
  std::size_t at = 0;
  for (std::ptrdiff_t done = 0; limit < 0 || done < limit; ++done) {
    if (old.empty()) {  // goes between all characters, and to both ends
      check_weight(out.size() + replacement.size());
      out += replacement;
      if (at == text.size()) return out;
      const std::size_t from = at;
      next_code_point(text, at);
      out += text.substr(from, at - from);
      continue;
    }
    const std::size_t found = text.find(old, at);
    if (found == std::string_view::npos) break;
    check_weight(out.size() + replacement.size() + found - at);
    out.append(text.substr(at, found - at)).append(replacement);
    at = found + old.size();
  }
  return out.append(text.substr(at));
}

std::size_t count_occurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return count_characters(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string reversed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const Pieces letters = all_characters(text);
  for (auto letter = letters.rbegin(); letter != letters.rend(); ++letter) out += *letter;
  return out;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const std::optional<std::string> digits = without_underscores(strip(text));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-')) return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range)
    throw Fault("the integer " + std::string(text) + " is beyond 64 bits, which is not supported");
  if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> digits = without_underscores(strip(text));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const bool complete = end == rest.data() + rest.size() && !rest.ends_with(')');  // Python knows no "nan(...)"
  if (!complete || (error != std::errc() && error != std::errc::result_out_of_range)) return std::nullopt;
  return value;
}

}  // namespace titan::data::jinja
