#include "checkpoint/format/safetensors.h"

#include <ATen/ATen.h>

#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

// Copies the first and the last row, with and without their first column, in their own dtype and cast.
void copy(const checkpoint::MappedSafetensors& file, const checkpoint::SafetensorsEntry& entry) {
  // The page after the end of a mapped file is filled with zeros, so that reading past the end does not crash.
  std::uint64_t end = c10::elementSize(entry.dtype);
  for (const std::int64_t size : entry.shape) end *= static_cast<std::uint64_t>(size);
  require(entry.begin + end <= std::filesystem::file_size(file.path()), "an entry beyond the file");
  if (entry.shape.empty() || entry.shape.size() > 2 || entry.shape[0] == 0) return;
  const bool matrix = entry.shape.size() == 2;
  const std::vector<std::int64_t> rows = {0, entry.shape[0] - 1};
  for (const std::int64_t first_col : {0, 1}) {
    if (matrix ? entry.shape[1] <= first_col : first_col > 0) continue;
    for (const auto dtype : {entry.dtype, at::kFloat}) {
      const at::Tensor target = matrix ? at::empty({2, entry.shape[1] - first_col}, dtype) : at::empty({2}, dtype);
      file.copy_rows(entry, rows, first_col, target);
    }
  }
}

}  // namespace

bool run_safetensors(std::string_view bytes) {
  static MemoryFile file;
  Input input(bytes);
  if (input.number(1) == 'h') {
    const std::string_view rest = input.rest();
    const std::size_t header = std::min(rest.find('\0'), rest.size());
    file.set(little_endian(header, 8) + std::string(rest.substr(0, header)) +
             std::string(rest.substr(std::min(header + 1, rest.size()))));
  } else {
    file.set(input.rest());
  }
  return accepts([&] {
    const checkpoint::MappedSafetensors mapped(file.path());
    for (const auto& entry : mapped.entries()) copy(mapped, entry);
  });
}

}  // namespace titan::fuzz
