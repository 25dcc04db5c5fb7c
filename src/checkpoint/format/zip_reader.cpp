#include "checkpoint/format/zip_reader.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/format/zip_format.h"
#include "checkpoint/io/crc32.h"

namespace titan::checkpoint {
namespace {

constexpr std::uint64_t kWindow = 8192;  // a small item is read with one system call
constexpr std::uint64_t kEndSize = 22;
constexpr std::uint64_t kEnd64Size = 56;
constexpr std::uint64_t kLocatorSize = 20;
constexpr std::uint64_t kEntrySize = 46;

std::uint64_t number(const std::string& bytes, std::uint64_t at, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

}  // namespace

ZipReader::ZipReader(const InputFile& file, std::uint64_t offset, std::uint64_t length, std::string what,
                     std::uint64_t max_records)
    : file_(file), offset_(offset), length_(length), what_(std::move(what)) {
  if (offset > file.size() || length > file.size() - offset)
    fail("reaches " + std::to_string(offset + length) + " bytes into a file of " + std::to_string(file.size()) +
         ": the file is truncated");
  if (length < kEndSize) fail("is too short for an archive");
  window_.resize(std::min(length, kWindow));
  file.read(offset + length - window_.size(), window_.data(), window_.size());
  read_directory(max_records);
}

std::string ZipReader::what() const {
  return what_ + " in " + file_.path().string() + " at offset " + std::to_string(offset_);
}

void ZipReader::fail(const std::string& message) const { throw CheckpointError(what() + ": " + message); }

std::string ZipReader::bytes(std::uint64_t at, std::uint64_t size) const {
  if (at > length_ || size > length_ - at)
    fail("the archive is damaged: a part of it lies outside its " + std::to_string(length_) + " bytes");
  const std::uint64_t window_start = length_ - window_.size();
  if (at >= window_start) return window_.substr(at - window_start, size);
  std::string result(size, '\0');
  file_.read(offset_ + at, result.data(), size);
  return result;
}

void ZipReader::read_directory(std::uint64_t max_records) {
  const std::string end = bytes(length_ - kEndSize, kEndSize);
  if (number(end, 0, 4) != 0x06054B50) fail("the archive is damaged: it does not end with a zip directory");
  std::uint64_t count = number(end, 10, 2);
  std::uint64_t size = number(end, 12, 4);
  std::uint64_t at = number(end, 16, 4);
  if (length_ >= kEndSize + kLocatorSize + kEnd64Size) {
    const std::string locator = bytes(length_ - kEndSize - kLocatorSize, kLocatorSize);
    if (number(locator, 0, 4) == 0x07064B50) {
      const std::string end64 = bytes(number(locator, 8, 8), kEnd64Size);
      if (number(end64, 0, 4) != 0x06064B50)
        fail("the archive is damaged: its zip64 directory is not where it should be");
      count = number(end64, 32, 8);
      size = number(end64, 40, 8);
      at = number(end64, 48, 8);
    }
  }
  if (count > max_records) fail("the archive is damaged: it claims " + std::to_string(count) + " records");
  const std::string directory = bytes(at, size);
  std::uint64_t here = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (directory.size() - here < kEntrySize || number(directory, here, 4) != 0x02014B50)
      fail("the archive is damaged: bad directory entry");
    const std::uint64_t name_size = number(directory, here + 28, 2);
    const std::uint64_t extra_size = number(directory, here + 30, 2);
    const std::uint64_t comment_size = number(directory, here + 32, 2);
    if (directory.size() - here < kEntrySize + name_size + extra_size + comment_size)
      fail("the archive is damaged: bad directory entry");
    const std::uint64_t method = number(directory, here + 10, 2);
    ZipRecord record{number(directory, here + 42, 4), number(directory, here + 24, 4),
                     static_cast<std::uint32_t>(number(directory, here + 16, 4))};
    std::uint64_t stored = number(directory, here + 20, 4);
    // Values that do not fit 32 bits are in the zip64 extra field, in this order.
    const std::uint64_t extra_end = here + kEntrySize + name_size + extra_size;
    for (std::uint64_t e = here + kEntrySize + name_size; e + 4 <= extra_end;) {
      const std::uint64_t field_end = e + 4 + number(directory, e + 2, 2);
      if (field_end > extra_end) break;
      if (number(directory, e, 2) == 0x0001) {
        std::uint64_t value_at = e + 4;
        for (std::uint64_t* value : {&record.size, &stored, &record.header_offset}) {
          if (*value != kMax32) continue;
          if (value_at + 8 > field_end) fail("the archive is damaged: short zip64 field");
          *value = number(directory, value_at, 8);
          value_at += 8;
        }
      }
      e = field_end;
    }
    std::string name = directory.substr(here + kEntrySize, name_size);
    if (method != 0 || stored != record.size)
      fail("the record " + name + " is compressed; checkpoints hold stored records only");
    if (const auto slash = name.find('/'); slash != std::string::npos) name.erase(0, slash + 1);
    records_.emplace(std::move(name), record);
    here = extra_end + comment_size;
  }
}

const ZipRecord* ZipReader::find(const std::string& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

const ZipRecord& ZipReader::get(const std::string& name) const {
  if (const ZipRecord* record = find(name)) return *record;
  fail("the archive has no record " + name);
}

std::uint64_t ZipReader::payload_offset(const ZipRecord& record) const {
  const std::string header = bytes(record.header_offset, kLocalHeaderSize);
  if (number(header, 0, 4) != 0x04034B50)
    fail("the archive is damaged: a record does not start where its directory says");
  const std::uint64_t start = record.header_offset + kLocalHeaderSize + number(header, 26, 2) + number(header, 28, 2);
  if (start > length_ || record.size > length_ - start) fail("the archive is damaged: a record lies outside it");
  return offset_ + start;
}

void ZipReader::check_crc(const ZipRecord& record, std::uint32_t crc) const {
  if (crc != record.crc)
    fail("the stored bytes do not match their checksum: the file was changed or damaged after it was written");
}

std::string ZipReader::read(const ZipRecord& record) const {
  std::string data = bytes(payload_offset(record) - offset_, record.size);
  check_crc(record, crc32(0, data.data(), data.size()));
  return data;
}

}  // namespace titan::checkpoint
