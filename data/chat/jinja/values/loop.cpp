#include "data/chat/jinja/values/loop.h"

#include <memory>

#include "data/chat/jinja/values/callable.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {

Values iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
      return value.as_list().items;
    case Kind::kDict: {
      Values keys;
      for (const auto& [key, item] : value.as_dict().entries) keys.push_back(key);
      return keys;
    }
    case Kind::kText: {
      const std::string& text = value.as_text();
      check_weight(text.size() * sizeof(Value));  // a character becomes a value
      Values characters;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t from = at;
        next_code_point(text, at);
        characters.push_back(Value::text(text.substr(from, at - from), value.is_safe_text()));
      }
      return characters;
    }
    case Kind::kIterator: {
      Iterator& iterator = value.as_iterator();
      Values rest(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      return rest;
    }
    case Kind::kLoop:
      throw Fault("iterating over `loop` itself is not supported");
    default:
      throw Fault("a value of type " + std::string(value.type_name()) + " cannot be iterated over");
  }
}

Loop::Loop(const Value& iterable, Condition condition)
    : items_(iterate(iterable)), depth_(iterable.depth() + 1), condition_(std::move(condition)) {
  if (depth_ > kMaxDepth) throw Fault("loops are stored in one another too deeply");
}

// Returns the next accepted item, or nullopt at the end.
std::optional<Value> Loop::take() {
  while (next_ < items_.size()) {
    const Value& item = items_[next_++];
    if (!condition_ || condition_(item)) return item;
  }
  return std::nullopt;
}

// Makes sure that ahead_ has the next item, if there is one.
void Loop::look_ahead() {
  if (taken_ < ahead_.size()) return;
  if (std::optional<Value> item = take()) ahead_.push_back(*std::move(item));
}

bool Loop::advance() {
  std::optional<Value> item;
  if (taken_ < ahead_.size()) {
    item = ahead_[taken_++];
  } else {
    item = take();
  }
  if (!item) return false;
  ++index0_;
  before_ = std::move(item_);
  item_ = std::move(item);
  return true;
}

void Loop::end() {
  condition_ = nullptr;
  next_ = items_.size();
}

std::size_t Loop::length() {
  while (std::optional<Value> item = take()) ahead_.push_back(*std::move(item));
  return static_cast<std::size_t>(index0_) + 1 + ahead_.size() - taken_;
}

std::optional<Value> Loop::attribute(std::string_view name) {
  const auto length_of = [&] { return static_cast<std::int64_t>(length()); };
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") {
    look_ahead();
    return Value::boolean(taken_ == ahead_.size());
  }
  if (name == "length") return Value::integer(length_of());
  if (name == "revindex") return Value::integer(length_of() - index0_);
  if (name == "revindex0") return Value::integer(length_of() - index0_ - 1);
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    look_ahead();
    return taken_ < ahead_.size() ? ahead_[taken_] : Value::undefined("there is no next item");
  }
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "changed" || name == "cycle") throw Fault("`loop." + std::string(name) + "` is not supported");
  return std::nullopt;
}

}  // namespace titan::data::jinja
