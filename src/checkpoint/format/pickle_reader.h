// Reads a pickle into a plain tree. Nothing is executed: a class or function becomes its name, a call a record of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::checkpoint {

using NodeId = std::uint32_t;

struct Node {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kList,
    kTuple,
    kDict,
    kGlobal,
    kObject,
    kPersistentId
  };
  Kind kind = Kind::kNone;
  bool built = false;        // kObject: BUILD set its state, the last child
  std::int64_t integer = 0;  // kBool, kInt; kText and kBytes and kGlobal: unused
  double real = 0;
  std::string_view text = {};  // kText (UTF-8), kBytes; kGlobal: "module\nname"
  std::vector<NodeId> children =
      {};  // kList, kTuple: items; kDict: key, value, key, …; kObject: callee, arguments [, state]; kPersistentId: id
};

// A parsed pickle with the bytes it points into. Nodes may be shared (memo): a file of a few kilobytes can describe
// gigabytes, so walkers must bound their depth, and bound what they visit and copy relative to num_bytes().
class PickleTree {
 public:
  // Parses all of `bytes`. `what` names the source in errors; `base_offset` is where the bytes start in the named file.
  // `globals`: the only "module\nname" entries that may occur; a trailing "*" matches any rest. Throws CheckpointError
  // naming source and offset for an opcode or global that is not expected, a stack or memo misuse, or a cut-off stream.
  static PickleTree parse(std::string bytes, std::string what, std::uint64_t base_offset,
                          std::span<const std::string_view> globals);

  PickleTree(PickleTree&&) = default;
  PickleTree& operator=(PickleTree&&) = default;

  NodeId root() const { return root_; }
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }
  std::size_t num_bytes() const { return bytes_.size(); }  // size of the pickle
  const std::string& what() const { return what_; }

  bool is_global(NodeId id, std::string_view module_newline_name) const;
  // True for an object made by calling that global.
  bool is_object_of(NodeId id, std::string_view module_newline_name) const;

  [[noreturn]] void fail(const std::string& message) const;

 private:
  friend class PickleMachine;
  PickleTree() = default;

  std::vector<char> bytes_;              // a vector keeps its address when the tree moves; the nodes' views need that
  std::vector<std::vector<char>> made_;  // text made while parsing: the names of globals
  std::vector<Node> nodes_;
  NodeId root_ = 0;
  std::string what_;
};

}  // namespace titan::checkpoint
