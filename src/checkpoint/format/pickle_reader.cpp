#include "checkpoint/format/pickle_reader.h"

#include <bit>
#include <unordered_map>

#include "base/error.h"

namespace titan::checkpoint {
namespace {

constexpr std::size_t kMaxGlobal = 256;

bool global_allowed(std::string_view name, std::span<const std::string_view> globals) {
  for (std::string_view allowed : globals) {
    if (allowed.ends_with('*') ? name.starts_with(allowed.substr(0, allowed.size() - 1)) : name == allowed) return true;
  }
  return false;
}

std::string readable(std::string_view global) {
  std::string text(global);
  if (const auto newline = text.find('\n'); newline != std::string::npos) text[newline] = '.';
  return text;
}

}  // namespace

// Stack machine of pickle protocols 2 to 4, limited to what checkpoints need.
class PickleMachine {
 public:
  PickleMachine(std::string_view in, std::uint64_t base_offset, std::span<const std::string_view> globals,
                PickleTree& tree)
      : in_(in), base_offset_(base_offset), globals_(globals), tree_(tree) {}

  void run() {
    while (true) {
      op_at_ = at_;
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!literal(code) && !container(code) && !memo(code) && !object(code)) {
        static constexpr char kHex[] = "0123456789abcdef";
        fail(std::string("opcode 0x") + kHex[code >> 4] + kHex[code & 15] + " is not one that checkpoints use");
      }
    }
    if (stack_.size() != 1 || !marks_.empty())
      fail("the pickle ends with " + std::to_string(stack_.size()) + " values on its stack");
    if (at_ != in_.size()) fail(std::to_string(in_.size() - at_) + " bytes follow the end of the pickle");
    tree_.root_ = stack_[0];
  }

 private:
  using Kind = Node::Kind;

  [[noreturn]] void fail(const std::string& message) const {
    throw CheckpointError(tree_.what_ + ": bad pickle at offset " + std::to_string(base_offset_ + op_at_) + ": " +
                          message);
  }

  std::string_view take(std::uint64_t count) {
    if (count > in_.size() - at_) fail("the data ends in the middle of an entry");
    const std::string_view part = in_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::uint64_t take_unsigned(int num_bytes) {
    std::uint64_t value = 0;
    const std::string_view part = take(static_cast<std::uint64_t>(num_bytes));
    for (int i = 0; i < num_bytes; ++i) value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    return value;
  }
  std::string_view take_line() {
    const auto end = in_.find('\n', at_);
    if (end == std::string_view::npos) fail("a name has no end");
    const std::string_view line = in_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  NodeId add(Node node) {
    tree_.nodes_.push_back(std::move(node));
    return static_cast<NodeId>(tree_.nodes_.size() - 1);
  }
  void push(NodeId id) { stack_.push_back(id); }
  void push_kind(Kind kind) { push(add({.kind = kind})); }
  void push_integer(std::int64_t value) { push(add({.kind = Kind::kInt, .integer = value})); }
  void push_text(Kind kind, std::string_view text) { push(add({.kind = kind, .text = text})); }

  // Values below the newest mark belong to an enclosing container.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  NodeId pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  NodeId top() const {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  std::vector<NodeId> pop_count(std::size_t count) {
    if (stack_.size() - floor() < count) fail("the stack is empty");
    std::vector<NodeId> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<NodeId> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<NodeId> items = pop_count(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  Node& target(Kind kind) {
    Node& node = tree_.nodes_[top()];
    if (node.kind != kind)
      fail(kind == Kind::kList ? "items are appended to something that is not a list"
                               : "items are set in something that is not a dict");
    return node;
  }

  bool literal(unsigned char code);
  bool container(unsigned char code);
  bool memo(unsigned char code);
  bool object(unsigned char code);
  void long_integer(std::size_t num_bytes);
  void push_global(std::string_view module, std::string_view name);
  void call();
  void remember(std::uint64_t index);
  void recall(std::uint64_t index);
  void extend(Kind kind, const std::vector<NodeId>& items);

  std::string_view in_;
  std::uint64_t base_offset_;
  std::span<const std::string_view> globals_;
  PickleTree& tree_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, NodeId> memo_;
  std::unordered_map<std::string, std::string_view> global_names_;  // each name is stored once
};

void PickleMachine::long_integer(std::size_t num_bytes) {
  if (num_bytes > 8) fail("an integer of more than 64 bits");
  const std::string_view part = take(num_bytes);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < num_bytes; ++i) value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
  const bool negative = num_bytes > 0 && (static_cast<unsigned char>(part[num_bytes - 1]) & 0x80) != 0;
  if (negative && num_bytes < 8) value |= ~std::uint64_t{0} << (8 * num_bytes);
  push_integer(static_cast<std::int64_t>(value));
}

bool PickleMachine::literal(unsigned char code) {
  switch (code) {
    case 0x80:  // PROTO
      if (const auto protocol = take_unsigned(1); protocol < 2 || protocol > 4)
        fail("pickle protocol " + std::to_string(protocol));
      return true;
    case 0x95:  // FRAME: its length only helps a streaming reader
      take_unsigned(8);
      return true;
    case 'N':
      push_kind(Kind::kNone);
      return true;
    case 0x88:
    case 0x89:
      push(add({.kind = Kind::kBool, .integer = code == 0x88}));
      return true;
    case 'K':
      push_integer(static_cast<std::int64_t>(take_unsigned(1)));
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(take_unsigned(2)));
      return true;
    case 'J':
      push_integer(static_cast<std::int32_t>(take_unsigned(4)));
      return true;
    case 0x8a:  // LONG1
      long_integer(take_unsigned(1));
      return true;
    case 'G': {
      std::uint64_t bits = 0;
      for (const char c : take(8)) bits = (bits << 8) | static_cast<unsigned char>(c);
      push(add({.kind = Kind::kFloat, .real = std::bit_cast<double>(bits)}));
      return true;
    }
    case 0x8c:  // SHORT_BINUNICODE
      push_text(Kind::kText, take(take_unsigned(1)));
      return true;
    case 'X':
      push_text(Kind::kText, take(take_unsigned(4)));
      return true;
    case 0x8d:  // BINUNICODE8
      push_text(Kind::kText, take(take_unsigned(8)));
      return true;
    case 'C':
      push_text(Kind::kBytes, take(take_unsigned(1)));
      return true;
    case 'B':
      push_text(Kind::kBytes, take(take_unsigned(4)));
      return true;
    case 0x8e:  // BINBYTES8
      push_text(Kind::kBytes, take(take_unsigned(8)));
      return true;
    default:
      return false;
  }
}

void PickleMachine::extend(Kind kind, const std::vector<NodeId>& items) {
  if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict key has no value");
  auto& children = target(kind).children;
  children.insert(children.end(), items.begin(), items.end());
}

bool PickleMachine::container(unsigned char code) {
  switch (code) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ']':
      push_kind(Kind::kList);
      return true;
    case '}':
      push_kind(Kind::kDict);
      return true;
    case ')':
      push_kind(Kind::kTuple);
      return true;
    case 't':
      push(add({.kind = Kind::kTuple, .children = pop_to_mark()}));
      return true;
    case 0x85:
    case 0x86:
    case 0x87:  // TUPLE1 to TUPLE3
      push(add({.kind = Kind::kTuple, .children = pop_count(code - 0x84u)}));
      return true;
    case 'a':
      extend(Kind::kList, pop_count(1));
      return true;
    case 'e':
      extend(Kind::kList, pop_to_mark());
      return true;
    case 's':
      extend(Kind::kDict, pop_count(2));
      return true;
    case 'u':
      extend(Kind::kDict, pop_to_mark());
      return true;
    default:
      return false;
  }
}

void PickleMachine::remember(std::uint64_t index) {
  // A writer numbers its memo densely, so an index beyond the number of opcodes is nonsense.
  if (index >= in_.size()) fail("memo index " + std::to_string(index));
  memo_[index] = top();
}

void PickleMachine::recall(std::uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail("memo entry " + std::to_string(index) + " does not exist");
  push(found->second);
}

bool PickleMachine::memo(unsigned char code) {
  switch (code) {
    case 0x94:  // MEMOIZE
      remember(memo_.size());
      return true;
    case 'q':
      remember(take_unsigned(1));
      return true;
    case 'r':
      remember(take_unsigned(4));
      return true;
    case 'h':
      recall(take_unsigned(1));
      return true;
    case 'j':
      recall(take_unsigned(4));
      return true;
    default:
      return false;
  }
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  // A memoized name costs two bytes per use in the file, but each use reads the full name.
  if (module.size() + name.size() > kMaxGlobal)
    fail("the name of a global has " + std::to_string(module.size() + name.size()) + " bytes");
  std::string full = std::string(module) + "\n" + std::string(name);
  auto found = global_names_.find(full);
  if (found == global_names_.end()) {
    if (!global_allowed(full, globals_)) fail("the global " + readable(full) + " is not one that checkpoints use");
    const auto& stored = tree_.made_.emplace_back(full.begin(), full.end());
    found = global_names_.emplace(std::move(full), std::string_view(stored.data(), stored.size())).first;
  }
  push_text(Kind::kGlobal, found->second);
}

void PickleMachine::call() {
  std::vector<NodeId> parts = pop_count(2);
  if (tree_.nodes_[parts[0]].kind != Kind::kGlobal) fail("something that is not a class or function is called");
  if (tree_.nodes_[parts[1]].kind != Kind::kTuple) fail("the arguments of a call are not a tuple");
  // An ordered dict is filled afterwards, like a plain one.
  if (tree_.is_global(parts[0], "collections\nOrderedDict") && tree_.nodes_[parts[1]].children.empty()) {
    push_kind(Kind::kDict);
    return;
  }
  push(add({.kind = Kind::kObject, .children = std::move(parts)}));
}

bool PickleMachine::object(unsigned char code) {
  switch (code) {
    case 'c': {
      const std::string_view module = take_line();
      push_global(module, take_line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const std::vector<NodeId> names = pop_count(2);
      const Node& module = tree_.nodes_[names[0]];
      const Node& name = tree_.nodes_[names[1]];
      if (module.kind != Kind::kText || name.kind != Kind::kText) fail("the name of a global is not a text");
      push_global(module.text, name.text);
      return true;
    }
    case 'R':
    case 0x81:  // REDUCE, NEWOBJ
      call();
      return true;
    case 'b': {  // BUILD
      const NodeId state = pop();
      Node& node = tree_.nodes_[top()];
      // state_dict() of a torch.nn.Module: an ordered dict that has _metadata besides its items.
      if (node.kind == Kind::kDict) return true;
      if (node.kind != Kind::kObject || node.built) fail("a state is given to something that takes none");
      node.children.push_back(state);
      node.built = true;
      return true;
    }
    case 'Q': {  // BINPERSID
      const NodeId id = pop();
      push(add({.kind = Kind::kPersistentId, .children = {id}}));
      return true;
    }
    default:
      return false;
  }
}

PickleTree PickleTree::parse(std::string bytes, std::string what, std::uint64_t base_offset,
                             std::span<const std::string_view> globals) {
  PickleTree tree;
  tree.what_ = std::move(what);
  tree.bytes_.assign(bytes.begin(), bytes.end());
  PickleMachine(std::string_view(tree.bytes_.data(), tree.bytes_.size()), base_offset, globals, tree).run();
  return tree;
}

bool PickleTree::is_global(NodeId id, std::string_view module_newline_name) const {
  return nodes_[id].kind == Node::Kind::kGlobal && nodes_[id].text == module_newline_name;
}

bool PickleTree::is_object_of(NodeId id, std::string_view module_newline_name) const {
  return nodes_[id].kind == Node::Kind::kObject && is_global(nodes_[id].children[0], module_newline_name);
}

void PickleTree::fail(const std::string& message) const { throw CheckpointError(what_ + ": " + message); }

}  // namespace titan::checkpoint
