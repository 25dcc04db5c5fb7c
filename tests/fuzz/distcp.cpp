#include <ATen/ATen.h>

#include "checkpoint/format/archive.h"
#include "checkpoint/format/zip_reader.h"
#include "checkpoint/io/crc32.h"
#include "checkpoint/io/file.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

// A minimal archive of records: their headers, the directory and its end, with correct checksums.
class Archive {
 public:
  void add(std::string_view name, std::string_view data) {
    const std::string sums = little_endian(checkpoint::crc32(0, data.data(), data.size()), 4) +
                             little_endian(data.size(), 4) + little_endian(data.size(), 4) +
                             little_endian(name.size(), 2) + little_endian(0, 2);
    directory_ += "PK\1\2" + std::string(12, '\0') + sums + std::string(10, '\0') + little_endian(bytes_.size(), 4) +
                  std::string(name);
    bytes_ += "PK\3\4" + std::string(10, '\0') + sums + std::string(name) + std::string(data);
    ++count_;
  }
  std::string finish() && {
    const std::string end = "PK\5\6" + std::string(4, '\0') + little_endian(count_, 2) + little_endian(count_, 2) +
                            little_endian(directory_.size(), 4) + little_endian(bytes_.size(), 4) +
                            std::string(2, '\0');
    return bytes_ + directory_ + end;
  }

 private:
  std::string bytes_;
  std::string directory_;
  std::uint64_t count_ = 0;
};

// Reads a small box at the tensor's start and one at its end, into targets of its dtype and of another.
bool read_tensor(const checkpoint::ZipReader& archive) {
  constexpr std::int64_t kRows = 3;
  const checkpoint::StoredTensor stored(archive);
  bool accepted = true;
  for (const bool at_end : {false, true}) {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : stored.sizes()) {
      sizes.push_back(std::min(size, sizes.size() < 4 ? kRows : 1));
      start.push_back(at_end ? size - sizes.back() : 0);
    }
    for (const auto dtype : {stored.dtype(), at::kDouble}) {
      const at::Tensor target = at::zeros(sizes, dtype);
      accepted &= accepts([&] { stored.read_box(start, target); });
    }
  }
  return accepted;
}

bool read_archive(const checkpoint::InputFile& file, std::uint64_t offset, std::uint64_t length) {
  bool accepted = false;
  accepts([&] {
    const checkpoint::ZipReader archive(file, offset, length, "item");
    accepted |= accepts([&] { checkpoint::read_value_archive(archive); });
    accepts([&] { accepted |= read_tensor(archive); });
  });
  return accepted;
}

}  // namespace

bool run_distcp(std::string_view bytes) {
  static MemoryFile file;
  Input input(bytes);
  const std::uint64_t kind = input.number(1);
  std::uint64_t offset = 0;
  std::uint64_t length = UINT32_MAX;
  if (kind == 'v') {
    Archive archive;
    archive.add("archive/data.pkl", input.rest());
    file.set(std::move(archive).finish());
  } else if (kind == 't') {
    Archive archive;
    archive.add("archive/data.pkl", input.bytes(input.number(2)));
    archive.add("archive/data/0", input.rest());
    file.set(std::move(archive).finish());
  } else {
    offset = input.number(4);
    length = input.number(4);
    file.set(input.rest());
  }
  const checkpoint::InputFile opened(file.path());
  if (length == UINT32_MAX) length = opened.size() - std::min(offset, opened.size());
  return read_archive(opened, offset, length);
}

}  // namespace titan::fuzz
