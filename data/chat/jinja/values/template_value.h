// Values of a template: what Python objects are to Jinja. Immutable, except namespaces and iterators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace titan::data::jinja {

// A failure while a template is rendered, without its place: the evaluator adds file, line and column.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Limits of one value. Templates come from downloaded files: `x ~ x` in a loop must end with an error, and recursion
// over a value (printing, comparing, destroying) must not exhaust the stack.
inline constexpr std::size_t kMaxDepth = 300;
inline constexpr std::size_t kMaxWeight = std::size_t{64} << 20;  // bytes of memory, about

// Throws Fault if a value of this weight must not be made.
void check_weight(std::size_t weight);

struct Missing;
struct List;
struct Dict;
struct Iterator;
struct Namespace;
struct Callable;
class Loop;

// Order of the alternatives in Value::Data.
enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kDict,
  kIterator,
  kNamespace,
  kLoop,
  kCallable
};

// Python's types that behave like a list; the last three are the views of a dict.
enum class ListKind { kList, kTuple, kRange, kKeys, kValues, kItems };

class Value {
 public:
  Value() = default;  // None

  // `message` says what is missing, for the error when the value is used: "'x' is undefined".
  static Value undefined(std::string message);
  static Value boolean(bool value) { return Value(Data(std::in_place_type<bool>, value)); }
  static Value integer(std::int64_t value) { return Value(Data(std::in_place_type<std::int64_t>, value)); }
  static Value real(double value) { return Value(Data(std::in_place_type<double>, value)); }
  // `text` must be valid UTF-8. `safe`: the text was marked by the filter `safe`; then "+" escapes the other operand.
  static Value text(std::string text, bool safe = false);
  static Value list(std::vector<Value> items, ListKind kind = ListKind::kList);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), ListKind::kTuple); }
  // Later entries with an equal key replace earlier ones, at their place. Throws Fault for a list or dict as key.
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  // A generator or reversed list: can be iterated once.
  static Value iterator(std::vector<Value> items);
  // The namespace must outlive the value: the evaluator keeps it until the end of the rendering.
  static Value of(Namespace* space) { return Value(Data(std::in_place_type<Namespace*>, space)); }
  static Value of(std::shared_ptr<Loop> loop);
  static Value of(std::shared_ptr<const Callable> callable);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_text() const { return is(Kind::kText); }
  bool is_list() const { return is(Kind::kList); }
  bool is_dict() const { return is(Kind::kDict); }
  bool is_safe_text() const { return is_text() && std::get<Text>(data_).safe; }
  bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }  // bool is an int in Python
  bool is_number() const { return is_integral() || is(Kind::kFloat); }

  // Each of these requires that kind.
  const std::string& missing() const;
  bool as_bool() const { return std::get<bool>(data_); }
  std::int64_t as_integer() const { return is(Kind::kBool) ? as_bool() : std::get<std::int64_t>(data_); }
  double as_real() const { return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_integer()); }
  const std::string& as_text() const { return *std::get<Text>(data_).bytes; }
  const List& as_list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Iterator& as_iterator() const { return *std::get<std::shared_ptr<Iterator>>(data_); }
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }
  Loop& as_loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }
  const Callable& as_callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  // Name of the Python type, for messages: "str", "NoneType".
  std::string_view type_name() const;

  // Nesting of containers below this value, and its size including all that it holds.
  std::size_t depth() const;
  std::size_t weight() const;

  // True if Python's `if` takes the value as true.
  bool truthy() const;

 private:
  struct Text {
    std::shared_ptr<const std::string> bytes;
    bool safe;
  };
  using Data = std::variant<std::shared_ptr<const Missing>, std::monostate, bool, std::int64_t, double, Text,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Iterator>,
                            Namespace*, std::shared_ptr<Loop>, std::shared_ptr<const Callable>>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_ = std::monostate();
};

using Values = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

struct Missing {
  std::string message;
};

// Depth and weight of a container, computed once.
struct Extent {
  std::size_t depth = 1;
  std::size_t weight = 1;
  // Throws Fault if the container with `part` is beyond the limits.
  void add(const Value& part);
};

struct List {
  ListKind kind;
  Values items;
  Extent extent;
};

struct Iterator {
  Values items;
  std::size_t next = 0;
  Extent extent;
};

struct Dict {
  Entries entries;
  std::unordered_map<std::string_view, std::size_t> index;  // keys that are text -> entry, if there are many
  Extent extent;

  // Returns null if there is no such key. Throws Fault for a list or dict as key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// An object whose attributes templates may set.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

}  // namespace titan::data::jinja
