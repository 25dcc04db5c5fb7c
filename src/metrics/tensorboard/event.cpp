#include "metrics/tensorboard/event.h"

#include <bit>
#include <cstring>

#include "metrics/rows/step_metrics.h"

namespace titan::metrics::tensorboard {
namespace {

// The wire format of protocol buffers: a field is its number and kind, then its value.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Appends the fields of a message to `out`.
class Fields {
 public:
  explicit Fields(std::string& out) : out_(out) {}

  void integer(int field, std::int64_t value) {
    key(field, Wire::kVarint);
    varint(static_cast<std::uint64_t>(value), out_.size());
  }
  void real(int field, double value) {
    key(field, Wire::kFixed64);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void real32(int field, float value) {
    key(field, Wire::kFixed32);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void bytes(int field, std::string_view value) {
    key(field, Wire::kBytes);
    varint(value.size(), out_.size());
    out_.append(value);
  }
  void reals(int field, std::span<const double> values) {
    message(field, [&] {
      for (const double value : values) little_endian(std::bit_cast<std::uint64_t>(value), 8);
    });
  }
  // Appends a message in this one; `write_fields` calls this object for its fields. Its length, which comes first, is
  // inserted when it is known.
  template <typename WriteFields>
  void message(int field, WriteFields write_fields) {
    key(field, Wire::kBytes);
    const std::size_t begin = out_.size();
    write_fields();
    varint(out_.size() - begin, begin);
  }

 private:
  void key(int field, Wire wire) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire), out_.size());
  }
  void varint(std::uint64_t value, std::size_t at) {
    char digits[10];
    std::size_t size = 0;
    for (; value >= 0x80; value >>= 7) digits[size++] = static_cast<char>(value | 0x80);
    digits[size++] = static_cast<char>(value);
    out_.insert(at, digits, size);
  }
  void little_endian(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) out_.push_back(static_cast<char>(value >> 8 * i));
  }

  std::string& out_;
};

// Field numbers, named as in event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;  // fields of a value
}  // namespace summary

Fields begin_event(std::string& out, Moment moment) {
  out.clear();
  Fields fields(out);
  fields.real(event::kWallTime, moment.unix_time);
  if (moment.step != 0) fields.integer(event::kStep, moment.step);
  return fields;
}

// Writes an event with one value under `tag`; `write_value` writes the value's other fields.
template <typename WriteValue>
void write_value_event(std::string& out, Moment moment, std::string_view tag, WriteValue write_value) {
  Fields fields = begin_event(out, moment);
  fields.message(event::kSummary, [&] {
    fields.message(summary::kValue, [&] {
      fields.bytes(summary::kTag, tag);
      write_value(fields);
    });
  });
}

}  // namespace

EventEncoder::EventEncoder() { out_.reserve(kMaxRowBytes); }

std::string_view EventEncoder::version(double unix_time) {
  begin_event(out_, {unix_time, 0}).bytes(event::kFileVersion, "brain.Event:2");
  return out_;
}

std::string_view EventEncoder::scalars(Moment moment, const Scalars& scalars) {
  Fields fields = begin_event(out_, moment);
  fields.message(event::kSummary, [&] {
    for (const auto& [tag, value] : scalars)
      fields.message(summary::kValue, [&] {
        fields.bytes(summary::kTag, tag);
        fields.real32(summary::kSimpleValue, value);
      });
  });
  return out_;
}

std::string_view EventEncoder::text(Moment moment, std::string_view tag, std::string_view text) {
  constexpr int kDtString = 7;  // tensorflow.DataType
  write_value_event(out_, moment, std::string(tag) + "/text_summary", [&](Fields& fields) {
    fields.message(summary::kTensor, [&] {
      fields.integer(1, kDtString);
      fields.message(2,
                     [&] { fields.message(2, [&] { fields.integer(1, 1); }); });  // TensorShapeProto: one dim of size 1
      fields.bytes(8, text);
    });
    // SummaryMetadata.plugin_data.plugin_name
    fields.message(summary::kMetadata, [&] { fields.message(1, [&] { fields.bytes(1, "text"); }); });
  });
  return out_;
}

std::string_view EventEncoder::histogram(Moment moment, std::string_view tag, const Histogram& histogram) {
  write_value_event(out_, moment, tag, [&](Fields& fields) {
    fields.message(summary::kHistogram, [&] {
      fields.real(1, histogram.min);
      fields.real(2, histogram.max);
      fields.real(3, histogram.count);
      fields.real(4, histogram.sum);
      fields.real(5, histogram.sum_of_squares);
      fields.reals(6, histogram.bucket_limits);
      fields.reals(7, histogram.counts);
    });
  });
  return out_;
}

std::string_view EventEncoder::restart(Moment moment) {
  constexpr int kStart = 1;  // tensorflow.SessionLog.SessionStatus
  Fields fields = begin_event(out_, moment);
  fields.message(event::kSessionLog, [&] { fields.integer(1, kStart); });
  return out_;
}

std::optional<std::int64_t> step_of_event(std::string_view bytes) {
  std::size_t at = 0;
  const auto varint = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  std::int64_t step = 0;
  while (at < bytes.size()) {
    const auto key = varint();
    if (!key) return std::nullopt;
    std::uint64_t skipped = 0;
    switch (static_cast<Wire>(*key & 7)) {
      case Wire::kVarint: {
        const auto value = varint();
        if (!value) return std::nullopt;
        if (*key >> 3 == event::kStep) step = static_cast<std::int64_t>(*value);
        break;
      }
      case Wire::kFixed64:
        skipped = 8;
        break;
      case Wire::kFixed32:
        skipped = 4;
        break;
      case Wire::kBytes: {
        const auto size = varint();
        if (!size) return std::nullopt;
        skipped = *size;
        break;
      }
      default:
        return std::nullopt;
    }
    if (skipped > bytes.size() - at) return std::nullopt;
    at += skipped;
  }
  return step;
}

}  // namespace titan::metrics::tensorboard
