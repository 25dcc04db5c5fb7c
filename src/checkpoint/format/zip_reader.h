// Reads a zip archive of stored records from a byte range of a file, by its central directory.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

struct ZipRecord {
  std::uint64_t header_offset = 0;  // in the archive
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
};

class ZipReader {
 public:
  // The archive is bytes [offset, offset + length) of `file`, which must outlive this. `what` (the item's name) appears
  // in errors. Throws CheckpointError if the range reaches beyond the file, or does not hold a well-formed archive of
  // at most `max_records` records.
  ZipReader(const InputFile& file, std::uint64_t offset, std::uint64_t length, std::string what,
            std::uint64_t max_records = 1024);

  const InputFile& file() const { return file_; }
  // Returns the record under the archive's top folder ("data.pkl", "data/0"), or null if there is none.
  const ZipRecord* find(const std::string& name) const;
  const ZipRecord& get(const std::string& name) const;  // throws if there is none

  const std::unordered_map<std::string, ZipRecord>& records() const { return records_; }

  // Returns the offset of the record's payload in the file (not in the archive).
  std::uint64_t payload_offset(const ZipRecord& record) const;
  // Returns the full payload after verifying its checksum.
  std::string read(const ZipRecord& record) const;
  void check_crc(const ZipRecord& record, std::uint32_t crc) const;

  // The item's name.
  const std::string& name() const { return what_; }
  // Returns "KEY in FILE at offset N", the name of this archive in errors.
  std::string what() const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  void read_directory(std::uint64_t max_records);
  std::string bytes(std::uint64_t at, std::uint64_t size) const;

  const InputFile& file_;
  std::uint64_t offset_;
  std::uint64_t length_;
  std::string what_;
  std::string window_;  // the archive's last bytes, read at once
  std::unordered_map<std::string, ZipRecord> records_;
};

}  // namespace titan::checkpoint
