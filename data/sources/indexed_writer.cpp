#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "data/sources/indexed_shards.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = 4 << 20;

template <typename T>
void append(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
void append_ids(std::vector<char>& out, std::span<const std::int32_t> tokens) {
  const std::size_t begin = out.size();
  out.resize(begin + tokens.size() * sizeof(T));
  char* at = out.data() + begin;
  for (const std::int32_t token : tokens) {
    const auto id = static_cast<T>(token);
    TITAN_CHECK(static_cast<std::int64_t>(id) == token, "token " + std::to_string(token) + " does not fit its type");
    std::memcpy(at, &id, sizeof(T));
    at += sizeof(T);
  }
}

[[noreturn]] void cannot_write(const fs::path& path) {
  throw DataError("cannot write " + path.string() + ": " + std::strerror(errno));
}

}  // namespace

std::size_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  throw InternalError("no token type " + std::to_string(static_cast<int>(type)));
}

TokenType token_type_for(std::int64_t vocab_size) {
  return vocab_size <= 1 + std::int64_t{std::numeric_limits<std::uint16_t>::max()} ? TokenType::kUint16
                                                                                   : TokenType::kInt32;
}

IndexedShardWriter::IndexedShardWriter(fs::path prefix, TokenType type)
    : prefix_(std::move(prefix)), temporary_(prefix_.string() + ".bin.tmp"), type_(type) {
  TITAN_CHECK(type == TokenType::kUint16 || type == TokenType::kInt32, "only these two are written");
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) cannot_write(temporary_);
}

IndexedShardWriter::~IndexedShardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void IndexedShardWriter::add_document(std::span<const std::int32_t> tokens) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw DataError("a document of " + std::to_string(tokens.size()) + " tokens is too long for the .idx format");
  }
  type_ == TokenType::kUint16 ? append_ids<std::uint16_t>(buffer_, tokens) : append_ids<std::int32_t>(buffer_, tokens);
  sizes_.push_back(static_cast<std::int32_t>(tokens.size()));
  if (buffer_.size() >= kBufferBytes) flush();
}

void IndexedShardWriter::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t written = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(temporary_);
    done += static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void IndexedShardWriter::finish() {
  flush();
  if (::fsync(descriptor_) != 0) cannot_write(temporary_);
  if (::close(std::exchange(descriptor_, -1)) != 0) cannot_write(temporary_);
  const fs::path bin = prefix_.string() + ".bin";
  if (::rename(temporary_.c_str(), bin.c_str()) != 0) cannot_write(bin);

  std::string index("MMIDIDX\0\0", 9);
  append(index, std::uint64_t{1});
  append(index, static_cast<std::uint8_t>(type_));
  append(index, std::uint64_t{sizes_.size()});
  append(index, std::uint64_t{sizes_.size() + 1});
  for (const std::int32_t size : sizes_) append(index, size);
  std::int64_t offset = 0;
  for (const std::int32_t size : sizes_) {
    append(index, offset);
    offset += size * static_cast<std::int64_t>(bytes_of(type_));
  }
  for (std::size_t i = 0; i <= sizes_.size(); ++i) append(index, static_cast<std::int64_t>(i));
  write_file_atomically(prefix_.string() + ".idx", index);
}

}  // namespace titan::data
