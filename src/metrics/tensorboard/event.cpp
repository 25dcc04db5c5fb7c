#include "metrics/tensorboard/event.h"

#include <bit>
#include <cstring>

namespace titan::metrics::tensorboard {
namespace {

// The wire format of protocol buffers: a field is its number and kind, then its value.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    key(field, Wire::kVarint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, double value) {
    key(field, Wire::kFixed64);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, float value) {
    key(field, Wire::kFixed32);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, Wire::kBytes);
    varint(value.size());
    text_.append(value);
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }
  Message& reals(int field, std::span<const double> values) {
    Message packed;
    for (const double value : values) packed.little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return message(field, packed);
  }
  const std::string& text() const { return text_; }

 private:
  void key(int field, Wire wire) { varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_.push_back(static_cast<char>(value | 0x80));
    text_.push_back(static_cast<char>(value));
  }
  void little_endian(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) text_.push_back(static_cast<char>(value >> 8 * i));
  }

  std::string text_;
};

// Numbers of the fields, named as in event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;  // of a value
}  // namespace summary

Message begin_event(Moment moment) {
  Message out;
  out.real(event::kWallTime, moment.unix_time);
  if (moment.step != 0) out.integer(event::kStep, moment.step);
  return out;
}

std::string summary_event(Moment moment, const Message& values) {
  return begin_event(moment).message(event::kSummary, values).text();
}

}  // namespace

std::string version_event(double unix_time) {
  return begin_event({unix_time, 0}).bytes(event::kFileVersion, "brain.Event:2").text();
}

std::string scalars_event(Moment moment, const Scalars& scalars) {
  Message values;
  for (const auto& [tag, value] : scalars)
    values.message(summary::kValue, Message().bytes(summary::kTag, tag).real32(summary::kSimpleValue, value));
  return summary_event(moment, values);
}

std::string text_event(Moment moment, std::string_view tag, std::string_view text) {
  constexpr int kDtString = 7;                                        // of tensorflow.DataType
  const Message one = Message().message(2, Message().integer(1, 1));  // TensorShapeProto: one dim of size 1
  const Message tensor = Message().integer(1, kDtString).message(2, one).bytes(8, text);
  const Message plugin = Message().message(1, Message().bytes(1, "text"));  // SummaryMetadata.plugin_data.plugin_name
  const Message value = Message()
                            .bytes(summary::kTag, std::string(tag) + "/text_summary")
                            .message(summary::kTensor, tensor)
                            .message(summary::kMetadata, plugin);
  return summary_event(moment, Message().message(summary::kValue, value));
}

std::string histogram_event(Moment moment, std::string_view tag, const Histogram& histogram) {
  const Message proto = Message()
                            .real(1, histogram.min)
                            .real(2, histogram.max)
                            .real(3, histogram.count)
                            .real(4, histogram.sum)
                            .real(5, histogram.sum_of_squares)
                            .reals(6, histogram.bucket_limits)
                            .reals(7, histogram.counts);
  const Message value = Message().bytes(summary::kTag, tag).message(summary::kHistogram, proto);
  return summary_event(moment, Message().message(summary::kValue, value));
}

std::string restart_event(Moment moment) {
  constexpr int kStart = 1;  // of tensorflow.SessionLog.SessionStatus
  return begin_event(moment).message(event::kSessionLog, Message().integer(1, kStart)).text();
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
