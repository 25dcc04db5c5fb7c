#include "data/io/line_index.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "data/io/cache.h"
#include "data/io/hash.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kIndexScanBytes = 1 << 20;

// LineHeader of an index on disk, in the byte order of the machine. The ends of the files and the starts of the lines
// follow.
struct LineHeader {
  std::array<char, 8> magic = {'T', 'T', 'L', 'I', 'N', 'E', 'S', '1'};
  std::uint64_t key = 0;
  std::uint64_t num_files = 0;
  std::uint64_t num_lines = 0;

  bool operator==(const LineHeader&) const = default;
  std::uint64_t bytes() const { return sizeof(LineHeader) + 8 * (num_files + num_lines); }
};

bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

// Finds the lines of one file that are not blank, chunk by chunk.
class LineScanner {
 public:
  explicit LineScanner(std::vector<std::uint64_t>& starts) : starts_(starts) {}

  void scan(std::string_view chunk, std::uint64_t chunk_offset) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::size_t at = chunk_offset == 0 && chunk.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < chunk.size()) {
      if (!in_line_) {
        // Skips blanks before the line; a newline here ends a blank line.
        while (at < chunk.size() && (is_blank(chunk[at]) || chunk[at] == '\n')) ++at;
        if (at == chunk.size()) return;
        starts_.push_back(chunk_offset + at);
        in_line_ = true;
      }
      const auto* newline = static_cast<const char*>(std::memchr(chunk.data() + at, '\n', chunk.size() - at));
      if (!newline) return;
      in_line_ = false;
      at = static_cast<std::size_t>(newline - chunk.data()) + 1;
    }
  }

 private:
  std::vector<std::uint64_t>& starts_;
  bool in_line_ = false;
};

struct Scan {
  std::vector<std::uint64_t> starts;
  std::vector<std::size_t> ends;
};

Scan scan(const std::vector<IndexedFile>& files) {
  Scan found;
  std::string chunk;
  for (const IndexedFile& each : files) {
    LineScanner scanner(found.starts);
    for (std::uint64_t at = 0; at < each.file->size(); at += chunk.size()) {
      chunk.resize(std::min<std::uint64_t>(kIndexScanBytes, each.file->size() - at));
      each.file->read_at(at, chunk);
      scanner.scan(chunk, at);
    }
    found.ends.push_back(found.starts.size());
  }
  return found;
}

LineIndex in_memory(Scan found) {
  const auto memory = std::make_shared<const Scan>(std::move(found));
  return {memory->starts, memory->ends, memory};
}

template <typename T>
std::span<const char> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

void write_index(const Scan& found, std::uint64_t key, const fs::path& path) {
  const LineHeader header{.key = key, .num_files = found.ends.size(), .num_lines = found.starts.size()};
  const std::vector<std::uint64_t> ends(found.ends.begin(), found.ends.end());
  OutputFile out(path);
  out.write(bytes_of(std::span(&header, 1)));
  out.write(bytes_of(std::span<const std::uint64_t>(ends)));
  out.write(bytes_of(std::span<const std::uint64_t>(found.starts)));
  out.sync();
}

// Returns nullopt if the file is not a complete index with that key.
std::optional<LineIndex> map_index(const fs::path& path, std::uint64_t key, std::size_t num_files) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat stat {};
  const bool has_size = ::fstat(descriptor, &stat) == 0 && stat.st_size >= static_cast<off_t>(sizeof(LineHeader));
  const auto size = static_cast<std::size_t>(stat.st_size);
  void* memory = has_size ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  if (memory == MAP_FAILED) return std::nullopt;
  const std::shared_ptr<const void> owner(memory, [size](const void* it) { ::munmap(const_cast<void*>(it), size); });
  const auto& header = *static_cast<const LineHeader*>(memory);
  const LineHeader expected{.key = key, .num_files = num_files, .num_lines = header.num_lines};
  if (!(header == expected) || header.num_lines > size || header.bytes() != size) return std::nullopt;
  const auto* numbers = reinterpret_cast<const std::uint64_t*>(static_cast<const char*>(memory) + sizeof(LineHeader));
  const std::vector<std::size_t> ends(numbers, numbers + num_files);
  const bool is_whole = std::ranges::is_sorted(ends) && (ends.empty() ? 0 : ends.back()) == header.num_lines;
  if (!is_whole) return std::nullopt;
  return LineIndex{{numbers + num_files, header.num_lines}, ends, owner};
}

std::uint64_t key_of(const std::vector<IndexedFile>& files) {
  std::uint64_t key = mix_bits(files.size());
  for (const IndexedFile& each : files) key = mix_bits(key ^ data::key_of(each.path, each.file->stamp()));
  return key;
}

LineIndex kept_index(const std::vector<IndexedFile>& files, std::uint64_t bytes) {
  const std::uint64_t key = key_of(files);
  const std::string name = fmt::format("{}-{:016x}.lines", files.front().path.stem().string(), key);
  std::optional<Scan> found;
  const fs::path path = made_once(name, [&](const fs::path& temporary) {
    spdlog::info("looking for the lines of {} in {}; their index is kept in {}",
                 format_bytes(static_cast<double>(bytes)), counted(std::ssize(files), "file"),
                 temporary.parent_path().string());
    found = scan(files);
    write_index(*found, key, temporary);
  });
  if (auto index = map_index(path, key, files.size())) return *std::move(index);
  if (found) return in_memory(*std::move(found));
  throw DataError(path.string() + " is not a whole index of lines; remove it, and it is made again");
}

}  // namespace

LineIndex index_lines(const std::vector<IndexedFile>& files, std::uint64_t worth_keeping) {
  std::uint64_t bytes = 0;
  for (const IndexedFile& each : files) bytes += each.file->size();
  if (files.empty() || bytes < worth_keeping) return in_memory(scan(files));
  try {
    return kept_index(files, bytes);
  } catch (const std::exception& error) {
    spdlog::warn("the lines of {} are looked for again at each start: {}", files.front().path.string(), error.what());
    return in_memory(scan(files));
  }
}

}  // namespace titan::data
