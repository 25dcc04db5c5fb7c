#include "data/chat/jinja/arguments.h"

#include "data/chat/jinja/values/value_operators.h"

namespace titan::data::jinja {

std::vector<const Value*> Arguments::bind(const std::string& what, std::initializer_list<std::string_view> names,
                                          std::size_t required) const {
  if (positional.size() > names.size())
    throw Fault(what + " takes at most " + std::to_string(names.size()) + " arguments; found " +
                std::to_string(positional.size()));
  std::vector<const Value*> bound(names.size(), nullptr);
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    std::size_t at = 0;
    while (at < names.size() && names.begin()[at] != name) ++at;
    if (at == names.size()) throw Fault(what + " does not have an argument `" + name + "`");
    if (bound[at] != nullptr) throw Fault(what + " is given its argument `" + name + "` twice");
    bound[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (bound[i] == nullptr) throw Fault(what + " needs the argument `" + std::string(names.begin()[i]) + "`");
  return bound;
}

std::vector<const Value*> Arguments::bind_positional(const std::string& what,
                                                     std::initializer_list<std::string_view> names,
                                                     std::size_t required) const {
  if (!named.empty()) throw Fault(what + " takes no named arguments; found `" + named.front().first + "`");
  return bind(what, names, required);
}

const std::string& text_argument(const std::string& what, const Value& value) {
  require_defined(value);
  if (!value.is_text()) throw Fault(what + " needs text; found " + std::string(value.type_name()));
  return value.as_text();
}

std::int64_t integer_argument(const std::string& what, const Value& value) {
  require_defined(value);
  if (!value.is_integral()) throw Fault(what + " needs an integer; found " + std::string(value.type_name()));
  return value.as_integer();
}

bool flag_argument(const Value* value) { return value != nullptr && value->truthy(); }

}  // namespace titan::data::jinja
