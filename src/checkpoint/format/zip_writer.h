// Writes a zip archive of stored (uncompressed) records as torch.save does, in one pass. See FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file.h"

namespace titan::checkpoint {

// Appends to `out` from its current position on, which becomes the archive's byte 0. Records of 4 GiB and more are
// fine.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& out) : out_(out), start_(out.position()) {}

  // The payload starts at a multiple of 64 bytes in the archive. Nothing is copied.
  void add(std::string_view name, const void* data, std::uint64_t size);
  void add(std::string_view name, std::string_view data) { add(name, data.data(), data.size()); }

  // The same for a payload that comes in parts: exactly `size` bytes between begin() and end().
  void begin(std::string_view name, std::uint64_t size);
  void append(const void* data, std::uint64_t size);
  void end();

  // Writes the central directory; gives the length of the archive.
  std::uint64_t finish();

  // The checksums of all records so far, folded into one number.
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
