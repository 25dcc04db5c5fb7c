#include "checkpoint/format/zip_writer.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/format/zip_format.h"
#include "checkpoint/io/crc32.h"

namespace titan::checkpoint {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kBlock = 1 << 20;  // small enough to be still in cache when written after its checksum
constexpr std::uint16_t kFlags = 0x0808;   // sizes follow in a data descriptor; names are UTF-8

class Bytes {
 public:
  Bytes& u16(std::uint64_t value) { return put(value, 2); }
  Bytes& u32(std::uint64_t value) { return put(value, 4); }
  Bytes& u64(std::uint64_t value) { return put(value, 8); }
  Bytes& text(std::string_view value) {
    data.append(value);
    return *this;
  }
  std::string data;

 private:
  Bytes& put(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) data.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
    return *this;
  }
};

}  // namespace

void ZipWriter::local_header(std::string_view name, bool zip64) {
  Bytes extra;
  // A reader that streams learns from this field that the descriptor's sizes have 8 bytes.
  if (zip64) extra.u16(0x0001).u16(16).u64(0).u64(0);
  // At least one byte of padding, a full block if the position is already aligned, as torch does.
  const std::uint64_t unpadded = at() + kLocalHeaderSize + name.size() + extra.data.size() + 4;
  const std::uint64_t padding = kAlignment - unpadded % kAlignment;
  extra.text("FB").u16(padding).text(std::string(padding, 'Z'));
  Bytes header;
  header.u32(0x04034B50).u16(0).u16(kFlags).u16(0).u32(0).u32(0).u32(0).u32(0);
  header.u16(name.size()).u16(extra.data.size()).text(name).text(extra.data);
  emit(header.data);
}

void ZipWriter::begin(std::string_view name, std::uint64_t size) {
  TITAN_CHECK(missing_ == 0, "the record before is not complete");
  records_.push_back({std::string(name), at(), size, 0});
  missing_ = size;
  local_header(name, size >= kMax32);
}

void ZipWriter::append(const void* data, std::uint64_t size) {
  TITAN_CHECK(size <= missing_, "more bytes than the record was to have");
  missing_ -= size;
  Record& record = records_.back();
  const auto* bytes = static_cast<const char*>(data);
  for (std::uint64_t done = 0; done < size; done += kBlock) {
    const std::uint64_t count = std::min(kBlock, size - done);
    const std::uint32_t crc = crc32(0, bytes + done, count);
    record.crc = crc32_combine(record.crc, crc, count);
    out_.append(bytes + done, count, crc);
  }
}

void ZipWriter::end() {
  TITAN_CHECK(missing_ == 0, "fewer bytes than the record was to have");
  const Record& record = records_.back();
  Bytes descriptor;
  descriptor.u32(0x08074B50).u32(record.crc);
  if (record.size >= kMax32) {
    descriptor.u64(record.size).u64(record.size);
  } else {
    descriptor.u32(record.size).u32(record.size);
  }
  emit(descriptor.data);
}

void ZipWriter::add(std::string_view name, const void* data, std::uint64_t size) {
  begin(name, size);
  append(data, size);
  end();
}

std::uint64_t ZipWriter::finish() {
  const std::uint64_t directory = at();
  for (const Record& record : records_) {
    Bytes wide;  // the values that do not fit 32 bits, in this order
    if (record.size >= kMax32) wide.u64(record.size).u64(record.size);
    if (record.header_offset >= kMax32) wide.u64(record.header_offset);
    Bytes extra;
    if (!wide.data.empty()) extra.u16(0x0001).u16(wide.data.size()).text(wide.data);
    const std::uint64_t size32 = std::min(record.size, kMax32);
    Bytes entry;
    entry.u32(0x02014B50).u16(0).u16(0).u16(kFlags).u16(0).u32(0).u32(record.crc).u32(size32).u32(size32);
    entry.u16(record.name.size()).u16(extra.data.size()).u16(0).u16(0).u16(0).u32(0);
    entry.u32(std::min(record.header_offset, kMax32)).text(record.name).text(extra.data);
    emit(entry.data);
  }
  const std::uint64_t end = at();
  const std::uint64_t count = records_.size();
  Bytes tail;
  tail.u32(0x06064B50)
      .u64(44)
      .u16(0x031E)
      .u16(45)
      .u32(0)
      .u32(0)
      .u64(count)
      .u64(count)
      .u64(end - directory)
      .u64(directory);
  tail.u32(0x07064B50).u32(0).u64(end).u32(1);
  tail.u32(0x06054B50).u16(0).u16(0).u16(count).u16(count).u32(std::min(end - directory, kMax32));
  tail.u32(std::min(directory, kMax32)).u16(0);
  emit(tail.data);
  return at();
}

std::uint32_t ZipWriter::combined_crc() const {
  std::uint32_t combined = 0;
  for (const Record& record : records_) combined = crc32(combined, &record.crc, sizeof record.crc);
  return combined;
}

}  // namespace titan::checkpoint
