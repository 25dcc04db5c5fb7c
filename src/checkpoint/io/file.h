// The files of a checkpoint. Every failure is a CheckpointError that names the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

namespace titan::checkpoint {

// Bytes [begin, begin + size) of a file or of a part of it, and their CRC-32.
struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
};

// A new file, written from front to back in blocks: while one is filled and checksummed, a thread writes the one
// before. Where the file system can, blocks go around the page cache (O_DIRECT): a checkpoint then takes no memory from
// the machine and evicts nobody's pages, and a write costs the disk's time rather than that of finding free pages.
class OutputFile {
 public:
  // Creates or truncates.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(const void* data, std::size_t size);
  // The same for bytes whose checksum the caller has made.
  void append(const void* data, std::size_t size, std::uint32_t crc);
  std::uint64_t position() const { return position_; }
  // The CRC-32 of everything appended so far.
  std::uint32_t crc() const { return crc_; }
  // Everything is on the disk when this returns. Without it the file is of no use.
  void finish();

 private:
  struct Unmap {
    void operator()(char* block) const;
  };
  using Block = std::unique_ptr<char, Unmap>;  // not of the heap, which would keep it

  static Block make_block();
  void put(const char* data, std::size_t size);
  void write_full_block();
  void write_out(const char* data, std::size_t size);
  void stop_direct();

  std::filesystem::path path_;
  Block filling_, writing_;
  int fd_;
  bool direct_ = false;
  std::size_t filled_ = 0;
  std::future<void> written_;  // of the block before; uses fd_ and writing_
  std::uint64_t position_ = 0;
  std::uint32_t crc_ = 0;
};

// An existing file of its final size, written at places. Several processes may have it open.
class PlacedFile {
 public:
  explicit PlacedFile(std::filesystem::path path);
  ~PlacedFile();
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;

  void write(std::uint64_t offset, const void* data, std::size_t size);
  // What was written, in that order; what follows the write before it is one piece with it.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // What this object wrote is on the disk when this returns.
  void finish();

 private:
  std::filesystem::path path_;
  int fd_;
  std::vector<Piece> pieces_;
};

class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Reads exactly `size` bytes at `offset`; throws when the file ends before. Safe from several threads.
  void read(std::uint64_t offset, void* data, std::size_t size) const;

 private:
  std::filesystem::path path_;
  int fd_;
  std::uint64_t size_ = 0;
};

}  // namespace titan::checkpoint
