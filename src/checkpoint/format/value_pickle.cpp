#include "checkpoint/format/value_pickle.h"

#include <array>

#include "base/error.h"
#include "checkpoint/format/pickle_writer.h"

namespace titan::checkpoint {
namespace {

constexpr int kMaxDepth = 64;

struct Emitter {
  PickleWriter& out;
  void operator()(std::monostate) const { out.none(); }
  void operator()(bool value) const { out.boolean(value); }
  void operator()(std::int64_t value) const { out.integer(value); }
  void operator()(double value) const { out.real(value); }
  void operator()(const std::string& value) const { out.text(value); }
  void operator()(const Value::Bytes& value) const { out.bytes(value.data); }
  void operator()(const Value::List& value) const {
    out.empty_list();
    out.mark();
    for (const Value& item : value.items) emit(item);
    out.append_from_mark();
  }
  void operator()(const Value::Tuple& value) const {
    if (value.items.empty()) {
      out.empty_tuple();
      return;
    }
    out.mark();
    for (const Value& item : value.items) emit(item);
    out.tuple_from_mark();
  }
  void operator()(const Value::Dict& value) const {
    out.empty_dict();
    out.mark();
    for (const auto& [key, item] : value.items) {
      emit(key);
      emit(item);
    }
    out.set_from_mark();
  }
  void emit(const Value& value) const { std::visit(*this, value.variant()); }
};

constexpr std::array<std::string_view, 4> kValueGlobals = {"_codecs\nencode", "collections\nOrderedDict",
                                                           "__builtin__\nbytes", "builtins\nbytes"};

// Limits of copied text: a string that the pickle holds once is copied at each use.
constexpr std::uint64_t kTextForEachByte = 64;
constexpr std::uint64_t kFreeText = 16 << 20;

// Turns a tree into a Value. A shared node is copied at each use, so count and bytes are bounded: a pickle crafted to
// explode fails.
class Decoder {
 public:
  explicit Decoder(const PickleTree& tree)
      : tree_(tree), budget_(4 * tree.size() + 1024), text_left_(kFreeText + kTextForEachByte * tree.num_bytes()) {}

  Value decode(NodeId id, int depth) {
    if (depth > kMaxDepth) tree_.fail("values are nested deeper than " + std::to_string(kMaxDepth) + " levels");
    if (budget_-- == 0) tree_.fail("a value refers to its own parts too often");
    const Node& node = tree_[id];
    switch (node.kind) {
      case Node::Kind::kNone:
        return {};
      case Node::Kind::kBool:
        return Value(node.integer != 0);
      case Node::Kind::kInt:
        return Value(node.integer);
      case Node::Kind::kFloat:
        return Value(node.real);
      case Node::Kind::kText:
        return Value(std::string(copied(node.text)));
      case Node::Kind::kBytes:
        return Value::bytes(std::string(copied(node.text)));
      case Node::Kind::kList:
        return Value::list(items(node, depth));
      case Node::Kind::kTuple:
        return Value::tuple(items(node, depth));
      case Node::Kind::kDict: {
        Value::Dict dict;
        for (std::size_t i = 0; i + 1 < node.children.size(); i += 2)
          dict.items.emplace_back(decode(node.children[i], depth + 1), decode(node.children[i + 1], depth + 1));
        return Value(std::move(dict));
      }
      case Node::Kind::kObject:
        return object(id);
      case Node::Kind::kGlobal:
      case Node::Kind::kPersistentId:
        break;
    }
    tree_.fail("holds a Python value that is neither a number, a string nor a container of them");
  }

 private:
  std::string_view copied(std::string_view text) {
    if (text.size() > text_left_) tree_.fail("a value refers to its own parts too often");
    text_left_ -= text.size();
    return text;
  }

  std::vector<Value> items(const Node& node, int depth) {
    std::vector<Value> result;
    result.reserve(node.children.size());
    for (const NodeId child : node.children) result.push_back(decode(child, depth + 1));
    return result;
  }

  // Decodes the two forms of bytes in protocol 2: bytes() and _codecs.encode(text, 'latin1').
  Value object(NodeId id) {
    const auto& arguments = tree_[tree_[id].children[1]].children;
    if (tree_.is_object_of(id, "_codecs\nencode")) {
      if (arguments.size() == 2 && is_text(arguments[0]) && is_text(arguments[1]) &&
          tree_[arguments[1]].text == "latin1")
        return Value::bytes(utf8_to_latin1(copied(tree_[arguments[0]].text)));
    } else if (arguments.empty() && !tree_[id].built) {
      return Value::bytes("");
    }
    tree_.fail("holds a call that does not make a bytes value");
  }

  bool is_text(NodeId id) const { return tree_[id].kind == Node::Kind::kText; }

  std::string utf8_to_latin1(std::string_view text) const {
    std::string bytes;
    bytes.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<unsigned char>(text[i]);
      if (first < 0x80) {
        bytes.push_back(text[i]);
        continue;
      }
      const unsigned second = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
      if ((first != 0xC2 && first != 0xC3) || (second & 0xC0) != 0x80)
        tree_.fail("a bytes value holds text that is not latin-1");
      bytes.push_back(static_cast<char>(((first & 0x03) << 6) | (second & 0x3F)));
      ++i;
    }
    return bytes;
  }

  const PickleTree& tree_;
  std::size_t budget_;
  std::uint64_t text_left_;
};

}  // namespace

std::string pickle_value(const Value& value, int protocol) {
  PickleWriter out(protocol);
  Emitter{out}.emit(value);
  return out.finish();
}

Value unpickle_value(std::string bytes, const std::string& what, std::uint64_t base_offset) {
  const PickleTree tree = PickleTree::parse(std::move(bytes), what, base_offset, kValueGlobals);
  return Decoder(tree).decode(tree.root(), 0);
}

}  // namespace titan::checkpoint
