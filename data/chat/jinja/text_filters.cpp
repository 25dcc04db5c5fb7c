#include <cmath>
#include <iterator>

#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

template <std::string (*convert)(std::string_view)>
Value convert_filter(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return Value::text(convert(to_text(input)));
}

// Capitalizes words, which end at white space and at opening brackets and hyphens; str.title() has other rules.
Value title(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  const std::string text = to_text(input);
  const auto parts_words = [](char32_t point) {
    return is_python_space(point) || point == '-' || point == '(' || point == '{' || point == '[' || point == '<';
  };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const bool is_gap = parts_words(next_code_point(text, at));
    const std::size_t rest = at;
    while (at < text.size()) {
      std::size_t next = at;
      if (parts_words(next_code_point(text, next)) != is_gap) break;
      at = next;
    }
    const std::string_view word = std::string_view(text).substr(from, at - from);
    out += to_upper(word.substr(0, rest - from)) + to_lower(word.substr(rest - from));
  }
  return Value::text(std::move(out));
}

Value trim(const std::string& what, const Value& input, const Arguments& arguments) {
  const Value* of = arguments.bind(what, {"chars"})[0];
  const std::string text = to_text(input);
  if (of == nullptr || of->is_none()) return Value::text(std::string(strip(text)));
  return Value::text(std::string(strip(text, Side::kBoth, text_argument(what, *of))));
}

Value replace_filter(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"old", "new", "count"}, 2);
  const bool limited = bound[2] != nullptr && !bound[2]->is_none();
  const std::ptrdiff_t limit = limited ? integer_argument(what, *bound[2]) : -1;
  return Value::text(replace(to_text(input), to_text(*bound[0]), to_text(*bound[1]), limit));
}

Value indent(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"width", "first", "blank"});
  std::string indention(4, ' ');
  if (bound[0] != nullptr && bound[0]->is_text()) {
    indention = bound[0]->as_text();
  } else if (bound[0] != nullptr) {
    const std::int64_t width = std::max<std::int64_t>(integer_argument(what, *bound[0]), 0);
    check_weight(static_cast<std::size_t>(width));
    indention.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = flag_argument(bound[2]);
  const std::string text = text_argument(what, input) + "\n";
  std::string out = flag_argument(bound[1]) ? indention : "";
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    check_weight(out.size() + indention.size());
    if (!first) out.append("\n").append(line.empty() && !blank ? "" : indention);
    first = false;
    out += line;
  }
  return Value::text(std::move(out));
}

// The text itself, which may be marked safe.
Value string(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return input.is_text() ? input : Value::text(to_text(input));
}

Value safe(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return Value::text(to_text(input), true);
}

// Throws for digits of other scripts, which Python reads and this program does not.
void require_ascii(const std::string& what, const Value& input) {
  if (!input.is_text()) return;
  for (const char32_t point : input.as_text())
    if (point >= 0x80) throw Fault(what + " reads ASCII only; found " + to_repr(input));
}

Value real_to_integer(const std::string& what, double real, const Value& otherwise) {
  if (!std::isfinite(real)) return otherwise;
  if (std::fabs(real) >= 9.2e18) throw Fault(what + " does not support integers beyond 64 bits");
  return Value::integer(static_cast<std::int64_t>(real));
}

Value integer(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"default", "base"});
  if (bound[1] != nullptr && !equal(*bound[1], Value::integer(10))) throw Fault(what + " supports base 10 only");
  const Value otherwise = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  require_defined(input);
  require_ascii(what, input);
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is(Kind::kFloat)) return real_to_integer(what, input.as_real(), otherwise);
  if (!input.is_text()) return otherwise;
  if (const auto number = parse_integer(input.as_text())) return Value::integer(*number);
  const auto real = parse_real(input.as_text());
  return real ? real_to_integer(what, *real, otherwise) : otherwise;
}

Value real(const std::string& what, const Value& input, const Arguments& arguments) {
  const Value* otherwise = arguments.bind(what, {"default"})[0];
  require_defined(input);
  require_ascii(what, input);
  if (input.is_number()) return Value::real(input.as_real());
  const auto number = input.is_text() ? parse_real(input.as_text()) : std::nullopt;
  if (number) return Value::real(*number);
  return otherwise != nullptr ? *otherwise : Value::real(0);
}

Value absolute(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  require_defined(input);
  if (!input.is_number()) throw Fault(what + " needs a number; found " + std::string(input.type_name()));
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_real()));
  return input.as_integer() < 0 ? negate(input) : Value::integer(input.as_integer());
}

// json.dumps as transformers calls it: no escapes for HTML, and characters outside ASCII are kept.
Value to_json_filter(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = flag_argument(bound[0]);
  style.sort_keys = flag_argument(bound[3]);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.lines = true;
    style.item_separator = ",";
    if (bound[1]->is_text()) {
      style.indent = bound[1]->as_text();
    } else {
      const std::int64_t width = std::max<std::int64_t>(integer_argument(what, *bound[1]), 0);
      check_weight(static_cast<std::size_t>(width));
      style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    if (!bound[2]->is_list() || bound[2]->as_list().items.size() != 2)
      throw Fault(what + " needs two separators, such as separators=(',', ':')");
    style.item_separator = text_argument(what, bound[2]->as_list().items[0]);
    style.key_separator = text_argument(what, bound[2]->as_list().items[1]);
  }
  return Value::text(to_json(input, style));
}

constexpr FilterRow kTextFilters[] = {{"upper", convert_filter<to_upper>},
                                      {"lower", convert_filter<to_lower>},
                                      {"capitalize", convert_filter<capitalize>},
                                      {"title", title},
                                      {"trim", trim},
                                      {"replace", replace_filter, true},
                                      {"indent", indent},
                                      {"string", string, true},
                                      {"safe", safe, true},
                                      {"int", integer, true},
                                      {"float", real, true},
                                      {"abs", absolute},
                                      {"tojson", to_json_filter, true}};

}  // namespace

FilterRows text_filters() { return {std::begin(kTextFilters), std::end(kTextFilters)}; }

}  // namespace titan::data::jinja
