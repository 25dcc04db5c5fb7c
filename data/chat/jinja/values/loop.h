// The variable `loop` of a for statement, and the items that the statement runs over.
#pragma once

#include <functional>
#include <optional>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Takes items one by one, as Python's iterators do: the condition of `for ... if` is evaluated only when the next item
// is needed, and may depend on what the loop's body did.
class Loop {
 public:
  using Condition = std::function<bool(const Value& item)>;

  // `iterable` is what iterate() accepts. An empty `condition` accepts every item.
  Loop(const Value& iterable, Condition condition);

  // Moves to the next item. Returns false at the end.
  bool advance();
  const Value& item() const { return *item_; }

  // Drops the condition, which must not be called after the statement has ended: loops can be stored in namespaces.
  void end();

  // Returns nullopt if `loop` has no attribute of this name. Throws Fault for one that is not supported.
  std::optional<Value> attribute(std::string_view name);

  std::size_t depth() const { return depth_; }

 private:
  std::optional<Value> take();
  void look_ahead();
  std::size_t length();

  Values items_;
  std::size_t next_ = 0;
  std::size_t depth_;
  Condition condition_;
  std::optional<Value> before_, item_;
  Values ahead_;           // accepted items after the current one, as far as they were needed
  std::size_t taken_ = 0;  // items of ahead_ that were moved to
  std::int64_t index0_ = -1;
};

// Returns the items that a for statement runs over, and consumes an iterator. Throws Fault if `value` is not iterable.
Values iterate(const Value& value);

}  // namespace titan::data::jinja
