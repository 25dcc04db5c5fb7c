#include "data/io/decompress.h"

#include <spdlog/spdlog.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/io/cache.h"
#include "data/io/files.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

using Sink = std::function<void(std::span<const char>)>;

// Reads the file piece by piece; an empty piece means the end.
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

// Returns the error, or "" on success.
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
  // Accepts files made with --long=31, as the zstd program does with that option.
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

std::string copy_name(const fs::path& path) {
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>(key_of(path, InputFile(path).stamp())));
  return path.stem().string() + "-" + hash;
}

void write_copy(const fs::path& path, const fs::path& copy) {
  OutputFile out(copy);
  std::int64_t line = 1;
  std::uint64_t bytes = 0;
  const Sink sink = [&](std::span<const char> piece) {
    line += std::ranges::count(piece, '\n');
    bytes += piece.size();
    try {
      out.write(piece);
    } catch (const DataError& error) {
      throw DataError("cannot decompress " + path.string() + ": " + error.what());
    }
  };
  Input input(path);
  const std::string fault = path.extension() == ".gz" ? inflate_all(input, sink) : unzstd_all(input, sink);
  if (!fault.empty()) {
    throw DataError(path.string() + ":" + std::to_string(line) + ": cannot decompress beyond this line (byte " +
                    std::to_string(bytes) + " of the content): " + fault);
  }
  out.sync();
}

}  // namespace

bool is_compressed(const fs::path& path) { return path.extension() == ".gz" || path.extension() == ".zst"; }

fs::path decompressed_copy(const fs::path& path) {
  return made_once(copy_name(path), [&](const fs::path& copy) {
    spdlog::info("decompressing {} to {}", path.string(), copy.parent_path().string());
    write_copy(path, copy);
  });
}

}  // namespace titan::data
