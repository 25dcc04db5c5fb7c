#include "data/io/decompress.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "base/process/rank_process.h"
#include "base/text.h"
#include "data/io/files.h"
#include "data/io/hash.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

using Sink = std::function<void(std::span<const char>)>;

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (number_ < 0) throw DataError("cannot write " + path.string() + ": " + std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  int get() const { return number_; }

 private:
  int number_;
};

// Gives the file piece by piece; an empty piece is its end.
class Input {
 public:
  explicit Input(const fs::path& path) : file_(path), piece_(kPieceBytes) {}

  std::span<const char> next() {
    const std::size_t count = std::min<std::uint64_t>(kPieceBytes, file_.size() - at_);
    file_.read_at(at_, std::span(piece_).first(count));
    at_ += count;
    return std::span(piece_).first(count);
  }

 private:
  InputFile file_;
  std::vector<char> piece_;
  std::uint64_t at_ = 0;
};

// What went wrong, or nothing.
std::string inflate_all(Input& input, const Sink& sink) {
  z_stream stream{};
  TITAN_CHECK(inflateInit2(&stream, 15 + 16) == Z_OK, "zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::vector<char> out(kPieceBytes);
  bool in_member = false, any_member = false;
  for (auto piece = input.next(); !piece.empty(); piece = input.next()) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    while (stream.avail_in > 0) {
      if (!in_member && any_member && *stream.next_in == 0) {  // padding between or after members
        ++stream.next_in;
        --stream.avail_in;
        continue;
      }
      in_member = true;
      int status = Z_OK;
      do {
        stream.next_out = reinterpret_cast<Bytef*>(out.data());
        stream.avail_out = static_cast<uInt>(out.size());
        status = inflate(&stream, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
          return stream.msg ? stream.msg : "damaged";
        }
        sink(std::span(out).first(out.size() - stream.avail_out));
      } while (status == Z_OK && (stream.avail_out == 0 || stream.avail_in > 0));
      if (status == Z_STREAM_END) {
        in_member = false;
        any_member = true;
        inflateReset(&stream);
      }
    }
  }
  if (in_member || !any_member) return "it ends in the middle of a stream: the file is cut short";
  return "";
}

std::string unzstd_all(Input& input, const Sink& sink) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  TITAN_CHECK(context != nullptr, "zstd cannot start");
  // Files made with --long=31 are read, as the zstd program reads them when it is asked to.
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 31);
  std::vector<char> out(ZSTD_DStreamOutSize());
  std::size_t state = 1;  // 0: between frames
  for (auto piece = input.next(); !piece.empty(); piece = input.next()) {
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    bool full = false;
    while (in.pos < in.size || full) {
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      state = ZSTD_decompressStream(context.get(), &to, &in);
      if (ZSTD_isError(state)) return ZSTD_getErrorName(state);
      full = to.pos == to.size;
      sink(std::span(out).first(to.pos));
    }
  }
  if (state != 0) return "it ends in the middle of a frame: the file is cut short";
  return "";
}

fs::path cache_folder() {
  if (const auto folder = get_env("TITAN_DATA_CACHE"); folder && !folder->empty()) return *folder;
  if (const auto folder = get_env("XDG_CACHE_HOME"); folder && !folder->empty())
    return fs::path(*folder) / "titan-train";
  if (const auto home = get_env("HOME"); home && !home->empty()) return fs::path(*home) / ".cache/titan-train";
  throw DataError("nowhere to keep decompressed data: set TITAN_DATA_CACHE to a folder");
}

std::string copy_name(const fs::path& path) {
  const FileStamp stamp = InputFile(path).stamp();
  std::uint64_t key = mix_bits(stamp.size) ^ static_cast<std::uint64_t>(stamp.changed_ns);
  const std::string name = fs::canonical(path).string();
  for (const char byte : name) key = mix_bits(key ^ static_cast<unsigned char>(byte));
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>(key));
  return path.stem().string() + "-" + hash;
}

void write_copy(const fs::path& path, const fs::path& temporary) {
  const Descriptor out(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  std::int64_t line = 1;
  std::uint64_t bytes = 0;
  const Sink sink = [&](std::span<const char> piece) {
    line += std::ranges::count(piece, '\n');
    bytes += piece.size();
    while (!piece.empty()) {
      const ssize_t written = ::write(out.get(), piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        throw DataError("cannot decompress " + path.string() + " to " + temporary.string() + ": " +
                        std::strerror(errno) + ". Set TITAN_DATA_CACHE to a folder with room for it");
      }
      piece = piece.subspan(static_cast<std::size_t>(written));
    }
  };
  Input input(path);
  const std::string fault = path.extension() == ".gz" ? inflate_all(input, sink) : unzstd_all(input, sink);
  if (!fault.empty()) {
    throw DataError(path.string() + ":" + std::to_string(line) + ": cannot decompress beyond this line (byte " +
                    std::to_string(bytes) + " of the content): " + fault);
  }
  if (::fsync(out.get()) != 0) throw DataError("cannot write " + temporary.string() + ": " + std::strerror(errno));
}

// A copy that another process has made meanwhile stays: readers may have looked at its time of change.
void put_in_place(const fs::path& temporary, const fs::path& copy) {
  if (::link(temporary.c_str(), copy.c_str()) == 0 || errno == EEXIST) {
    fs::remove(temporary);
  } else {
    fs::rename(temporary, copy);  // a file system without hard links
  }
}

}  // namespace

bool is_compressed(const fs::path& path) { return path.extension() == ".gz" || path.extension() == ".zst"; }

fs::path decompressed_copy(const fs::path& path) {
  const fs::path folder = cache_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw DataError("cannot make the folder " + folder.string() + ": " + error.message());
  const fs::path copy = folder / copy_name(path);
  if (fs::exists(copy, error)) return copy;
  const Descriptor lock(copy.string() + ".lock", O_RDWR | O_CREAT);
  while (::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  if (fs::exists(copy, error)) return copy;  // made while this process waited
  spdlog::info("decompressing {} to {}", path.string(), copy.string());
  // A name of its own: where the file system has no locks, several work at once, and the first copy stays.
  const fs::path temporary = copy.string() + "." + host_name() + "." + std::to_string(::getpid()) + ".tmp";
  try {
    write_copy(path, temporary);
    put_in_place(temporary, copy);
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
  return copy;
}

}  // namespace titan::data
