// Emits Python pickle opcodes. Knows no checkpoint class: metadata.cpp and value_pickle.cpp say what is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace titan::checkpoint {

// Protocol 2 (what torch.save writes) or 4 (what pickle.dump writes). Strings and globals that occur again come from
// the memo, so a file with thousands of equal class names stays small.
class PickleWriter {
 public:
  explicit PickleWriter(int protocol);

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void real(double value);
  void text(std::string_view utf8);       // memoized
  void text_once(std::string_view utf8);  // not memoized
  void bytes(std::string_view data);      // protocol 2 has no bytes: _codecs.encode(text, 'latin1'), as Python does
  void global(std::string_view module, std::string_view name);  // memoized

  void empty_list();
  void empty_dict();
  void empty_tuple();
  void mark();
  void tuple_from_mark();
  void tuple(int count);    // of the `count` values on the stack; count 1, 2 or 3
  void append_from_mark();  // APPENDS
  void set_from_mark();     // SETITEMS
  void reduce();
  void new_object();  // NEWOBJ
  void build();
  void persistent_id();  // BINPERSID

  // Ends the pickle and gives its bytes; call once.
  std::string finish();

 private:
  void op(char code) { out_.push_back(code); }
  void little_endian(std::uint64_t value, int num_bytes);
  bool recall(const std::string& key);
  void remember(std::string key);

  int protocol_;
  std::string out_;
  std::unordered_map<std::string, std::uint32_t> memo_;
};

}  // namespace titan::checkpoint
