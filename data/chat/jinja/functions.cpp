#include <algorithm>
#include <array>

#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

constexpr std::uint64_t kMaxRange = 100'000;  // the limit of Jinja's sandbox

Value range(const std::string& what, RenderState&, const Arguments& arguments) {
  const auto bound = arguments.bind_positional(what, {"start", "stop", "step"}, 1);
  const bool has_stop = bound[1] != nullptr;
  const std::int64_t start = has_stop ? integer_argument(what, *bound[0]) : 0;
  const std::int64_t stop = integer_argument(what, has_stop ? *bound[1] : *bound[0]);
  const std::int64_t step = bound[2] != nullptr ? integer_argument(what, *bound[2]) : 1;
  if (step == 0) throw Fault(what + " needs a step that is not 0");
  const auto distance = [](std::int64_t low, std::int64_t high) {
    return high > low ? static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) : 0;
  };
  const std::uint64_t width = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const std::uint64_t span = step > 0 ? distance(start, stop) : distance(stop, start);
  const std::uint64_t count = span / width + (span % width != 0);
  if (count > kMaxRange) throw Fault(what + " has more than " + std::to_string(kMaxRange) + " numbers");
  Values items;
  for (std::uint64_t i = 0; i < count; ++i)
    items.push_back(Value::integer(start + static_cast<std::int64_t>(i) * step));
  return Value::list(std::move(items), ListKind::kRange);
}

// Entries of dict() and namespace(): a dict or a list of pairs, and named arguments.
Entries entries_of(const std::string& what, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Fault(what + " takes one dict, and named arguments");
  Entries entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    require_defined(source);
    if (source.is_dict()) {
      entries = source.as_dict().entries;
    } else {
      for (const Value& pair : iterate(source)) {
        const Values parts = iterate(pair);
        if (parts.size() != 2) throw Fault(what + " needs a dict, or a list of pairs");
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::text(name), value);
  return entries;
}

Value dict(const std::string& what, RenderState&, const Arguments& arguments) {
  return Value::dict(entries_of(what, arguments));
}

Value make_namespace(const std::string& what, RenderState& state, const Arguments& arguments) {
  Namespace& space = state.spaces.emplace_back();
  for (auto& [name, value] : entries_of(what, arguments)) {
    const std::string& text = text_argument(what, name);
    if (text.starts_with('_')) throw Fault("an attribute of a namespace must not start with _: `" + text + "`");
    space.set(text, value);
  }
  return Value::of(&space);
}

Value raise_exception(const std::string& what, RenderState&, const Arguments& arguments) {
  throw Fault("the template refuses this conversation: " + to_text(*arguments.bind(what, {"message"}, 1)[0]));
}

// Formats the local time, as datetime.now().strftime() does.
Value strftime_now(const std::string& what, RenderState& state, const Arguments& arguments) {
  const std::string& format = text_argument(what, *arguments.bind(what, {"format"}, 1)[0]);
  constexpr std::string_view kFlags = "-_0^#";
  constexpr std::string_view kDirectives = "aAbBcdHIjmMpSUwWxXyYGuV%eDFTRnth";
  for (std::size_t at = format.find('%'); at != std::string::npos; at = format.find('%', at + 1)) {
    const std::size_t start = at++;
    if (at < format.size() && kFlags.find(format[at]) != std::string_view::npos) ++at;
    if (at >= format.size() || kDirectives.find(format[at]) == std::string_view::npos)
      throw Fault(what + " does not support the directive \"" + format.substr(start, at + 1 - start) + "\"");
  }
  const std::time_t now = state.clock ? state.clock() : std::time(nullptr);
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) throw Fault(what + " does not know the local time");
  if (format.empty()) return Value::text("");
  check_weight(format.size() * 8);
  std::string out(format.size() * 8 + 128, '\0');  // no directive gives more than some dozen bytes
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &parts));
  return Value::text(std::move(out));
}

constexpr std::array<std::pair<std::string_view, Function>, 5> kFunctions = {{{"range", range},
                                                                              {"dict", dict},
                                                                              {"namespace", make_namespace},
                                                                              {"raise_exception", raise_exception},
                                                                              {"strftime_now", strftime_now}}};

}  // namespace

Function find_function(std::string_view name) {
  for (const auto& [known, function] : kFunctions)
    if (known == name) return function;
  return nullptr;
}

}  // namespace titan::data::jinja
