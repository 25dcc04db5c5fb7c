// Emits Python pickle opcodes. metadata_encode.cpp and value_pickle.cpp decide what is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace titan::checkpoint {

// Writes protocol 2 (as torch.save) or 4 (as pickle.dump). Repeated strings and globals come from the memo, so a file
// with thousands of equal class names stays small.
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
  void tuple(int count);    // takes the `count` values on the stack; count 1, 2 or 3
  void append_from_mark();  // APPENDS
  void set_from_mark();     // SETITEMS
  void reduce();
  void new_object();  // NEWOBJ
  void build();
  void persistent_id();  // BINPERSID

  // Ends the pickle and returns its bytes; call once.
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
