// The files of a checkpoint. Every failure is a CheckpointError that names the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace titan::checkpoint {

// Bytes [begin, begin + size) of a file or of a part of it, and their CRC-32.
struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
};

// A new file, written from front to back in blocks: while one block is filled and checksummed, a thread writes the
// previous one. If the file system supports it, blocks bypass the page cache (O_DIRECT): a checkpoint then takes no
// memory from the machine, evicts no pages of others, and a write does not wait for free pages.
class OutputFile {
 public:
  // Creates or truncates the file.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(const void* data, std::size_t size);
  // Appends bytes whose checksum the caller has computed.
  void append(const void* data, std::size_t size, std::uint32_t crc);
  std::uint64_t position() const { return position_; }
  // Returns the CRC-32 of everything appended so far.
  std::uint32_t crc() const { return crc_; }
  // Flushes and closes the file: everything is on disk when this returns. Without it the file is unusable.
  void finish();

 private:
  struct Unmap {
    void operator()(char* block) const;
  };
  using Block = std::unique_ptr<char, Unmap>;  // not from the heap, which would keep it

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
  std::future<void> written_;  // write of the previous block; uses fd_ and writing_
  std::uint64_t position_ = 0;
  std::uint32_t crc_ = 0;
};

// An existing file of its final size, written at given offsets. Several processes may have it open.
class PlacedFile {
 public:
  explicit PlacedFile(std::filesystem::path path);
  ~PlacedFile();
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;

  void write(std::uint64_t offset, const void* data, std::size_t size);
  // Returns what was written, in that order; a write that continues the previous one extends its piece.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Flushes and closes the file: what this object wrote is on disk when this returns.
  void finish();

 private:
  std::filesystem::path path_;
  int fd_;
  std::vector<Piece> pieces_;
};

// An existing file. Errors that may pass are retried (read_error.h); one that stays is a ReadError. A missing file, or
// one that ends early, is a plain CheckpointError: the checkpoint is damaged.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Reads exactly `size` bytes at `offset`; throws if the file ends earlier. Safe from several threads.
  void read(std::uint64_t offset, void* data, std::size_t size) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// Returns all bytes of a file. Throws as InputFile does.
std::string read_whole(const std::filesystem::path& path);

}  // namespace titan::checkpoint
