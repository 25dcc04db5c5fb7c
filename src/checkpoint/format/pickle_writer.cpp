#include "checkpoint/format/pickle_writer.h"

#include <bit>
#include <limits>

#include "base/error.h"

namespace titan::checkpoint {
namespace {

// Converts Latin-1 bytes to UTF-8 text: every byte is the code point of the same value.
std::string latin1_to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text.push_back(c);
    } else {
      text.push_back(static_cast<char>(0xC0 | (byte >> 6)));
      text.push_back(static_cast<char>(0x80 | (byte & 0x3F)));
    }
  }
  return text;
}

}  // namespace

PickleWriter::PickleWriter(int protocol) : protocol_(protocol) {
  TITAN_CHECK(protocol == 2 || protocol == 4, "pickle protocol " + std::to_string(protocol));
  op('\x80');
  op(static_cast<char>(protocol));
}

void PickleWriter::little_endian(std::uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  const bool is_short = found->second < 256;
  op(is_short ? 'h' : 'j');
  little_endian(found->second, is_short ? 1 : 4);
  return true;
}

void PickleWriter::remember(std::string key) {
  const auto index = static_cast<std::uint32_t>(memo_.size());
  memo_.emplace(std::move(key), index);
  if (protocol_ >= 4) {
    op('\x94');  // MEMOIZE assigns the indices itself, in the same order
  } else {
    op(index < 256 ? 'q' : 'r');
    little_endian(index, index < 256 ? 1 : 4);
  }
}

void PickleWriter::none() { op('N'); }

void PickleWriter::boolean(bool value) { op(value ? '\x88' : '\x89'); }

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value < 256) {
    op('K');
    little_endian(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value < 65536) {
    op('M');
    little_endian(static_cast<std::uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    op('J');
    little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    op('\x8a');
    op(8);
    little_endian(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  op('G');
  for (int shift = 56; shift >= 0; shift -= 8) out_.push_back(static_cast<char>((bits >> shift) & 0xFF));
}

void PickleWriter::text(std::string_view utf8) {
  std::string key = "s" + std::string(utf8);
  if (recall(key)) return;
  text_once(utf8);
  remember(std::move(key));
}

void PickleWriter::text_once(std::string_view utf8) {
  if (protocol_ >= 4 && utf8.size() < 256) {
    op('\x8c');
    little_endian(utf8.size(), 1);
  } else {
    TITAN_CHECK(utf8.size() <= std::numeric_limits<std::uint32_t>::max(), "a string of more than 4 GiB");
    op('X');
    little_endian(utf8.size(), 4);
  }
  out_.append(utf8);
}

void PickleWriter::bytes(std::string_view data) {
  if (protocol_ >= 4) {
    TITAN_CHECK(data.size() <= std::numeric_limits<std::uint32_t>::max(), "a byte string of more than 4 GiB");
    op(data.size() < 256 ? 'C' : 'B');
    little_endian(data.size(), data.size() < 256 ? 1 : 4);
    out_.append(data);
  } else if (data.empty()) {
    global("__builtin__", "bytes");
    empty_tuple();
    reduce();
  } else {
    global("_codecs", "encode");
    text_once(latin1_to_utf8(data));
    text("latin1");
    tuple(2);
    reduce();
  }
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  std::string key = "g" + std::string(module) + "\n" + std::string(name);
  if (recall(key)) return;
  if (protocol_ >= 4) {
    text(module);
    text(name);
    op('\x93');
  } else {
    op('c');
    out_.append(module);
    op('\n');
    out_.append(name);
    op('\n');
  }
  remember(std::move(key));
}

void PickleWriter::empty_list() { op(']'); }
void PickleWriter::empty_dict() { op('}'); }
void PickleWriter::empty_tuple() { op(')'); }
void PickleWriter::mark() { op('('); }
void PickleWriter::tuple_from_mark() { op('t'); }

void PickleWriter::tuple(int count) {
  TITAN_CHECK(count >= 1 && count <= 3, "a short tuple has 1 to 3 items");
  op(static_cast<char>('\x84' + count));  // TUPLE1, TUPLE2 and TUPLE3 are 0x85 to 0x87
}

void PickleWriter::append_from_mark() { op('e'); }
void PickleWriter::set_from_mark() { op('u'); }
void PickleWriter::reduce() { op('R'); }
void PickleWriter::new_object() { op('\x81'); }
void PickleWriter::build() { op('b'); }
void PickleWriter::persistent_id() { op('Q'); }

std::string PickleWriter::finish() {
  op('.');
  return std::move(out_);
}

}  // namespace titan::checkpoint
