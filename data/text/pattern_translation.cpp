// Implements translate_pattern() of split_regex.h. Refuses everything not known to mean the same to both libraries.
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "data/text/code_points.h"
#include "data/text/pcre2_code.h"
#include "data/text/split_regex.h"
#include "data/text/unicode_category.h"

namespace titan::data {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(what + " is not supported in a pre-tokenizer's regular expression");
}

std::string code_text(char32_t point) {
  char text[16];
  std::snprintf(text, sizeof(text), "\\x{%X}", static_cast<unsigned>(point));
  return text;
}

std::string class_text(const CodeRanges& ranges) {
  std::string text;
  for (const CodeRange& range : ranges) {
    text += code_text(range.first);
    if (range.last > range.first) text.append("-").append(code_text(range.last));
  }
  return text;
}

// Excludes surrogates: PCRE2 rejects them in a class.
CodeRanges complement(const CodeRanges& ranges) {
  return difference(difference({{0, kLastCodePoint}}, ranges), {{0xD800, 0xDFFF}});
}

// Returns the code points that PCRE2 matches with \p{name}.
CodeRanges pcre2_ranges(const std::string& name) {
  static const std::string every_point = [] {
    std::string text;
    for (char32_t point = 0; point <= kLastCodePoint; ++point) {
      if (point < 0xD800 || point > 0xDFFF) append_utf8(text, point);
    }
    return text;
  }();
  const auto code = compile_pcre2("\\p{" + name + "}+");
  const Pcre2Ptr<pcre2_match_data> match(pcre2_match_data_create(1, nullptr));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
  CodeRanges ranges;
  std::size_t at = 0;
  while (pcre2_jit_match(code.get(), reinterpret_cast<const PCRE2_UCHAR*>(every_point.data()), every_point.size(), at,
                         0, match.get(), nullptr) > 0) {
    at = bounds[0];
    ranges.push_back({next_code_point(every_point, at), previous_code_point(every_point, bounds[1])});
    at = bounds[1];
  }
  return ranges;
}

// Returns the inside of a class that means \p{name}: the library's own property, which is fast, and what it lacks. If
// the library's property has more, spells out the code points.
std::string property_text(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // tokenizers use few properties, each many times
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const auto wanted = category_ranges(name);
  if (!wanted) refuse("\\p{" + name + "}");
  const CodeRanges assigned = difference(*wanted, {{0xD800, 0xDFFF}});
  const CodeRanges library = pcre2_ranges(name);
  const bool library_has_more = !difference(library, assigned).empty();
  std::string text =
      library_has_more ? class_text(assigned) : "\\p{" + name + "}" + class_text(difference(assigned, library));
  return known.emplace(name, std::move(text)).first->second;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) step();
    if (!caseless_.empty()) throw DataError("a group is not closed");
    return std::move(out_);
  }

 private:
  struct ClassItem {
    std::string text;  // the inside of a class
    CodeRanges ranges;
    bool negated = false;
  };

  bool looking_at(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  bool is_caseless() const { return !caseless_.empty() && caseless_.back(); }

  void step() {
    switch (in_[at_]) {
      case '\\':
        return escape();
      case '[':
        return character_class();
      case '(':
        return open_group();
      case ')':
        if (caseless_.empty()) throw DataError("a group is closed that is not open");
        caseless_.pop_back();
        [[fallthrough]];
      case '|':
      case '.':
      case '^':
      case '$':
        out_ += in_[at_++];
        last_caseless_ = 0;
        return;
      case '*':
      case '+':
      case '?':
        return quantifier();
      case '{':
        return interval();
      default:
        return literal(next_code_point(in_, at_));
    }
  }

  void literal(char32_t point) {
    if (is_caseless()) check_caseless(point);
    if (point < 0x80 && (std::isalnum(static_cast<int>(point)) || point == ' ' || point == '\'')) {
      out_ += static_cast<char>(point);
    } else {
      out_ += code_text(point);
    }
  }

  // Refuses two letters that Oniguruma, ignoring case, also matches with one ligature.
  void check_caseless(char32_t point) {
    if (point >= 0x80) refuse("a character beyond ASCII in (?i:)");
    const char lower = static_cast<char>(std::tolower(static_cast<int>(point)));
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"}) {
      if (last_caseless_ == pair[0] && lower == pair[1]) refuse("\"" + std::string(pair) + "\" in (?i:)");
    }
    last_caseless_ = lower;
  }

  void open_group() {
    constexpr std::array<std::string_view, 7> kGroups = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (const std::string_view group : kGroups) {
      if (!looking_at(group)) continue;
      out_ += group;
      at_ += group.size();
      caseless_.push_back(is_caseless() || group == "(?i:");
      last_caseless_ = 0;
      return;
    }
    if (looking_at("(?")) refuse("\"" + std::string(in_.substr(at_, 4)) + "\"");
    out_ += "(?:";  // captures are never used
    ++at_;
    caseless_.push_back(is_caseless());
  }

  void quantifier() {
    out_ += in_[at_++];
    if (at_ < in_.size() && (in_[at_] == '?' || in_[at_] == '+')) out_ += in_[at_++];
    refuse_quantified_quantifier();
  }

  void refuse_quantified_quantifier() const {
    if (at_ < in_.size() && (in_[at_] == '*' || in_[at_] == '+' || in_[at_] == '?')) refuse("a repeated repetition");
  }

  // Copies {n}, {n,} or {n,m}. A quantifier after it means different things to the two libraries.
  void interval() {
    const std::size_t end = in_.find('}', at_);
    const std::string_view body = end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    if (body.empty() || !std::isdigit(static_cast<unsigned char>(body[0])) ||
        body.find_first_not_of("0123456789,") != std::string_view::npos) {
      refuse("a brace that is not {n}, {n,} or {n,m}");
    }
    out_ += in_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    refuse_quantified_quantifier();
  }

  void escape() {
    if (const auto item = class_escape()) {
      if (is_caseless()) refuse("a class in (?i:)");
      out_ += (item->negated ? "[^" : "[") + item->text + "]";
      return;
    }
    literal(character_escape());
  }

  // Parses \p{..}, \P{..}, \s, \d and their opposites. Returns nullopt and consumes nothing for another escape.
  std::optional<ClassItem> class_escape() {
    if (at_ + 1 >= in_.size()) throw DataError("it ends with a backslash");
    const char kind = in_[at_ + 1];
    if (kind == 's' || kind == 'S') {
      at_ += 2;
      return ClassItem{class_text(whitespace_ranges()), whitespace_ranges(), kind == 'S'};
    }
    if (kind == 'd' || kind == 'D') {
      at_ += 2;
      return property_item("Nd", kind == 'D');
    }
    if (kind != 'p' && kind != 'P') return std::nullopt;
    const std::size_t end = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) refuse("\\p without {name}");
    std::string name(in_.substr(at_ + 3, end - at_ - 3));
    bool negated = kind == 'P';
    if (name.starts_with('^')) {
      name.erase(0, 1);
      negated = !negated;
    }
    at_ = end + 1;
    return property_item(name, negated);
  }

  static ClassItem property_item(const std::string& name, bool negated) {
    std::string text = property_text(name);  // refuses a name that has no ranges
    return ClassItem{std::move(text), *category_ranges(name), negated};
  }

  char32_t character_escape() {
    const char kind = in_[at_ + 1];
    at_ += 2;
    switch (kind) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'u':
        return hexadecimal(4);
      case 'x': {
        if (at_ < in_.size() && in_[at_] == '{') {
          const std::size_t end = in_.find('}', at_++);
          if (end == std::string_view::npos) throw DataError("\\x{ is not closed");
          const char32_t point = hexadecimal(end - at_);
          ++at_;
          return point;
        }
        const char32_t point = hexadecimal(2);
        if (point >= 0x80) refuse("a byte as \\x80 or above");
        return point;
      }
      default:
        if (!std::ispunct(static_cast<unsigned char>(kind))) refuse(std::string("\\") + kind);
        return static_cast<unsigned char>(kind);
    }
  }

  char32_t hexadecimal(std::size_t digits) {
    const std::string text(in_.substr(at_, digits));
    if (digits == 0 || digits > 6 || text.size() < digits ||
        text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      throw DataError("\"" + text + "\" is not a code point");
    }
    at_ += digits;
    return static_cast<char32_t>(std::stoul(text, nullptr, 16));
  }

  void character_class() {
    if (is_caseless()) refuse("a class in (?i:)");
    ++at_;
    out_ += '[';
    if (looking_at("^")) {
      out_ += '^';
      ++at_;
    }
    if (looking_at("]")) refuse("an empty class");
    while (!looking_at("]")) {
      if (at_ >= in_.size()) throw DataError("a class is not closed");
      if (looking_at("[")) refuse("a class in a class");
      if (looking_at("&&")) refuse("&& in a class");
      class_item();
    }
    ++at_;
    out_ += ']';
  }

  void class_item() {
    if (in_[at_] == '\\') {
      if (const auto item = class_escape()) {
        if (looking_at("-") && !looking_at("-]")) refuse("a range that begins with a class");
        out_ += item->negated ? class_text(complement(item->ranges)) : item->text;
        return;
      }
    }
    const char32_t first = class_character();
    out_ += code_text(first);
    if (!looking_at("-") || looking_at("-]")) return;
    ++at_;
    out_.append("-").append(code_text(class_character()));
  }

  char32_t class_character() {
    if (at_ < in_.size() && in_[at_] == '\\') {
      if (class_escape()) refuse("a range that ends with a class");
      return character_escape();
    }
    if (at_ >= in_.size()) throw DataError("a class is not closed");
    return next_code_point(in_, at_);
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<bool> caseless_;  // per open group
  char last_caseless_ = 0;      // the previous letter in a caseless group
};

}  // namespace

std::string translate_pattern(std::string_view oniguruma) { return Translator(oniguruma).run(); }

}  // namespace titan::data
