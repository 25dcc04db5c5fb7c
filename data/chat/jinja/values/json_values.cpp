#include "data/chat/jinja/values/json_values.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string checked(const std::string& text) {
  if (find_invalid_utf8(text)) throw Fault("the text \"" + escape_invalid_utf8(text).substr(0, 60) + "\" is not UTF-8");
  return text;
}

Value convert(const Json& json, std::size_t depth) {
  if (depth > kMaxDepth) throw Fault("the JSON is nested more than " + std::to_string(kMaxDepth) + " levels deep");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX)
        throw Fault("the integer " + json.dump() + " is beyond 64 bits with sign");
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::text(checked(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      Entries entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items())
        entries.emplace_back(Value::text(checked(key)), convert(item, depth + 1));
      return Value::dict(std::move(entries));
    }
    default:
      return {};
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  void append(const Value& value, std::size_t level) {
    check_weight(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return;
      case Kind::kInt:
      case Kind::kFloat:
        out_ += number(value);
        return;
      case Kind::kText:
        append_string(value.as_text());
        return;
      case Kind::kList:
        if (value.as_list().kind <= ListKind::kTuple) return append_list(value.as_list().items, level);
        break;
      case Kind::kDict:
        return append_dict(value.as_dict(), level);
      default:
        break;
    }
    throw Fault("`tojson` cannot write " + (value.is_undefined()
                                                ? "an undefined value: " + value.missing()
                                                : "a value of type " + std::string(value.type_name())));
  }

  static std::string number(const Value& value) {
    if (!value.is(Kind::kFloat)) return std::to_string(value.as_integer());
    const double real = value.as_real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real > 0 ? "Infinity" : "-Infinity";
    return real_to_text(real);
  }

  void append_escape(char32_t unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kDigits[unit >> shift & 15];
  }

  void append_string(const std::string& text) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t from = at;
      const char32_t point = next_code_point(text, at);
      const std::size_t known = point < 0x80 ? kShort.find(static_cast<char>(point)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[known];
      } else if (point < 0x20 || (style_.ascii_only && point >= 0x7F && point < 0x10000)) {
        append_escape(point);
      } else if (style_.ascii_only && point >= 0x10000) {
        append_escape(0xD800 + ((point - 0x10000) >> 10));
        append_escape(0xDC00 + ((point - 0x10000) & 0x3FF));
      } else {
        out_.append(text, from, at - from);
      }
    }
    out_ += '"';
  }

  void begin_item(bool first, std::size_t level) {
    if (!first) out_ += style_.item_separator;
    if (style_.lines) end_line(level + 1);
  }

  void end_line(std::size_t level) {
    check_weight(out_.size() + style_.indent.size() * level);
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void append_list(const Values& items, std::size_t level) {
    out_ += '[';
    for (const Value& item : items) {
      begin_item(&item == &items.front(), level);
      append(item, level + 1);
    }
    if (style_.lines && !items.empty()) end_line(level);
    out_ += ']';
  }

  void append_key(const Value& key) {
    if (key.is_text()) return append_string(key.as_text());
    if (key.is_none() || key.is_number()) {
      out_ += '"';
      append(key, 0);
      out_ += '"';
      return;
    }
    throw Fault("`tojson` cannot write a key of type " + std::string(key.type_name()));
  }

  void append_dict(const Dict& dict, std::size_t level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::ranges::stable_sort(entries, [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    out_ += '{';
    for (const auto* entry : entries) {
      begin_item(entry == entries.front(), level);
      append_key(entry->first);
      out_ += style_.key_separator;
      append(entry->second, level + 1);
    }
    if (style_.lines && !entries.empty()) end_line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value from_json(const nlohmann::ordered_json& json) { return convert(json, 0); }

std::string to_json(const Value& value, const JsonStyle& style) { return JsonWriter(style).write(value); }

}  // namespace titan::data::jinja
