#include "data/chat/jinja/values/template_value.h"

#include <algorithm>

#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/value_operators.h"

namespace titan::data::jinja {
namespace {

constexpr std::size_t kIndexFrom = 16;  // entries from which a dict looks keys up in its index

void check_key(const Value& key) {
  const bool hashable = !key.is_dict() && !(key.is_list() && key.as_list().kind != ListKind::kTuple);
  if (!hashable) throw Fault("a " + std::string(key.type_name()) + " cannot be the key of a dict");
}

}  // namespace

void check_weight(std::size_t weight) {
  if (weight > kMaxWeight)
    throw Fault("a value has become larger than " + std::to_string(kMaxWeight >> 20) +
                " MiB; the template repeats or joins too much");
}

void Extent::add(const Value& part) {
  depth = std::max(depth, part.depth() + 1);
  weight += part.weight();
  if (depth > kMaxDepth) throw Fault("values are nested more than " + std::to_string(kMaxDepth) + " levels deep");
  check_weight(weight);
}

Value Value::undefined(std::string message) {
  return Value(Data(std::make_shared<const Missing>(Missing{std::move(message)})));
}

Value Value::text(std::string text, bool safe) {
  check_weight(text.size());
  return Value(Data(Text{std::make_shared<const std::string>(std::move(text)), safe}));
}

Value Value::list(Values items, ListKind kind) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  return Value(Data(std::make_shared<const List>(List{kind, std::move(items), extent})));
}

Value Value::iterator(Values items) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  return Value(Data(std::make_shared<Iterator>(Iterator{std::move(items), 0, extent})));
}

Value Value::dict(Entries entries) {
  auto dict = std::make_shared<Dict>();
  dict->entries.reserve(entries.size());
  const bool indexed = entries.size() >= kIndexFrom;
  for (auto& [key, value] : entries) {
    check_key(key);
    if (const Value* present = dict->find(key)) {
      const_cast<Value&>(*present) = std::move(value);  // an entry of the dict under construction
      continue;
    }
    if (indexed && key.is_text()) dict->index.emplace(key.as_text(), dict->entries.size());
    dict->entries.emplace_back(std::move(key), std::move(value));
  }
  for (const auto& [key, value] : dict->entries) {
    dict->extent.add(key);
    dict->extent.add(value);
  }
  return Value(Data(std::shared_ptr<const Dict>(std::move(dict))));
}

Value Value::of(std::shared_ptr<Loop> loop) { return Value(Data(std::move(loop))); }

Value Value::of(std::shared_ptr<const Callable> callable) { return Value(Data(std::move(callable))); }

const std::string& Value::missing() const { return std::get<std::shared_ptr<const Missing>>(data_)->message; }

std::string_view Value::type_name() const {
  constexpr std::string_view kLists[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool",      "int",       "float", "str",
                                         "list",      "dict",     "generator", "namespace", "loop",  "function"};
  if (is_list()) return kLists[static_cast<std::size_t>(as_list().kind)];
  return kNames[data_.index()];
}

std::size_t Value::depth() const {
  switch (kind()) {
    case Kind::kList:
      return as_list().extent.depth;
    case Kind::kDict:
      return as_dict().extent.depth;
    case Kind::kIterator:
      return as_iterator().extent.depth;
    case Kind::kLoop:
      return as_loop().depth();
    case Kind::kCallable:
      return 1 + as_callable().receiver.depth();
    default:
      return 0;
  }
}

std::size_t Value::weight() const {
  switch (kind()) {
    case Kind::kText:
      return sizeof(Value) + as_text().size();
    case Kind::kList:
      return as_list().extent.weight;
    case Kind::kDict:
      return as_dict().extent.weight;
    case Kind::kIterator:
      return as_iterator().extent.weight;
    default:
      return sizeof(Value);
  }
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_integer() != 0;
    case Kind::kFloat:
      return as_real() != 0;
    case Kind::kText:
      return !as_text().empty();
    case Kind::kList:
      return !as_list().items.empty();
    case Kind::kDict:
      return !as_dict().entries.empty();
    default:
      return true;
  }
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is_text() && name.as_text() == key) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  check_key(key);
  if (key.is_text()) return find(key.as_text());
  for (const auto& [name, value] : entries)
    if (equal(name, key)) return &value;
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

void Namespace::set(const std::string& name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(name, std::move(value));
}

}  // namespace titan::data::jinja
