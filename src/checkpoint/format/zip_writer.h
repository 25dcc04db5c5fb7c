// Writes a zip archive of stored (uncompressed) records as torch.save does, in one pass. See FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

// Appends an archive to `out`; the current position becomes the archive's byte 0. Records may have 4 GiB and more.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& out) : out_(out), start_(out.position()) {}

  // Adds a record without copying it. The payload starts at a multiple of 64 bytes in the archive.
  void add(std::string_view name, const void* data, std::uint64_t size);
  void add(std::string_view name, std::string_view data) { add(name, data.data(), data.size()); }

  // Add a record whose payload comes in parts: exactly `size` bytes between begin() and end().
  void begin(std::string_view name, std::uint64_t size);
  void append(const void* data, std::uint64_t size);
  void end();

  // Writes the central directory. Returns the length of the archive.
  std::uint64_t finish();

  // Returns the checksums of all records so far, combined into one value.
  std::uint32_t combined_crc() const;

 private:
  struct Record {
    std::string name;
    std::uint64_t header_offset;
    std::uint64_t size;
    std::uint32_t crc;
  };

  std::uint64_t at() const { return out_.position() - start_; }
  void emit(const std::string& bytes) { out_.append(bytes.data(), bytes.size()); }
  void local_header(std::string_view name, bool zip64);

  OutputFile& out_;
  std::uint64_t start_;
  std::vector<Record> records_;
  std::uint64_t missing_ = 0;  // bytes of the last record that are still to come
};

}  // namespace titan::checkpoint
