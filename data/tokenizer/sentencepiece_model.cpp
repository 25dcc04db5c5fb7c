#include "data/tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <new>

#include "base/error.h"

namespace titan::data {
namespace {

// Field numbers of sentencepiece_model.proto.
enum ModelField { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };
enum PieceField { kPieceType = 3 };
enum PieceType { kUserDefined = 4 };
enum TrainerField { kModelType = 3, kTreatWhitespaceAsSuffix = 24 };
enum NormalizerField { kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4, kEscapeWhitespaces = 5 };
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Walks the fields of one protobuf message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  // Returns false at the end of the message.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    number_ = static_cast<int>(tag >> 3);
    value_ = 0;
    bytes_ = {};
    switch (tag & 7) {
      case kVarint:
        value_ = varint();
        break;
      case kFixed64:
        take(8);
        break;
      case kBytes:
        bytes_ = take(varint());
        break;
      case kFixed32:
        take(4);
        break;
      default:
        fail();
    }
    return true;
  }

  int number() const { return number_; }
  std::uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }

 private:
  [[noreturn]] static void fail() { throw DataError("not a SentencePiece model: damaged protobuf message"); }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    fail();
  }

  std::string_view rest_;
  int number_ = 0;
  std::uint64_t value_ = 0;
  std::string_view bytes_;
};

void read_trainer_spec(std::string_view bytes, SentencePieceModelInfo& info) {
  for (Fields field(bytes); field.next();) {
    if (field.number() == kModelType) info.model_type = static_cast<std::int64_t>(field.value());
    if (field.number() == kTreatWhitespaceAsSuffix) info.treat_whitespace_as_suffix = field.value() != 0;
  }
}

void read_normalizer_spec(std::string_view bytes, SentencePieceModelInfo& info) {
  for (Fields field(bytes); field.next();) {
    if (field.number() == kCharsmap) info.has_charsmap = !field.bytes().empty();
    if (field.number() == kAddDummyPrefix) info.add_dummy_prefix = field.value() != 0;
    if (field.number() == kRemoveExtraWhitespaces) info.remove_extra_whitespaces = field.value() != 0;
    if (field.number() == kEscapeWhitespaces) info.escape_whitespaces = field.value() != 0;
  }
}

void read_piece(std::string_view bytes, SentencePieceModelInfo& info) {
  for (Fields field(bytes); field.next();) {
    if (field.number() == kPieceType && field.value() == kUserDefined) info.has_user_defined = true;
  }
}

}  // namespace

std::string load_sentencepiece(std::string_view model, sentencepiece::SentencePieceProcessor& processor) {
  try {
    const auto status = processor.LoadFromSerializedProto(model);
    return status.ok() ? "" : status.message();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

SentencePieceModelInfo read_sentencepiece_model_info(std::string_view serialized) {
  SentencePieceModelInfo info;
  for (Fields field(serialized); field.next();) {
    if (field.number() == kPieces) read_piece(field.bytes(), info);
    if (field.number() == kTrainerSpec) read_trainer_spec(field.bytes(), info);
    if (field.number() == kNormalizerSpec) read_normalizer_spec(field.bytes(), info);
  }
  return info;
}

}  // namespace titan::data
