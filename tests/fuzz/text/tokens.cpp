#include "base/fs.h"
#include "data/sources/indexed_shards.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

constexpr std::int64_t kSeqLen = 3, kVocab = 70000, kMostWindows = 100;

std::string shard(data::TokenType type) {
  const MemoryFolder folder;
  data::IndexedShardWriter writer(folder.path() / "a", type);
  for (const std::vector<std::int32_t>& document : {std::vector<std::int32_t>{1, 2, 65535}, {}, {7, 8, 9, 10, 11}})
    writer.add_document(document);
  writer.finish();
  const std::string bin = read_file(folder.path() / "a.bin");
  return little_endian(bin.size(), 2) + bin + read_file(folder.path() / "a.idx");
}

}  // namespace

bool run_tokens(std::string_view bytes) {
  static const MemoryFolder folder;
  Input input(bytes);
  write_over(folder.path() / "a.bin", input.bytes(input.number(2)));
  write_over(folder.path() / "a.idx", input.rest());
  return accepts([&] {
    const auto source = data::open_indexed_shards(folder.path() / "a", kSeqLen, kVocab);
    for (std::int64_t i = 0; i < std::min(source->num_items(), kMostWindows); ++i) {
      accepts([&] {
        const auto run = source->tokens(i);
        require(run.size() == kSeqLen + 1, "a window of another length");
        for (const auto id : *run.owner) require(id >= 0 && id < kVocab, "an id beyond the vocabulary");
      });
    }
  });
}

Seeds tokens_seeds() {
  return {{"uint16", shard(data::TokenType::kUint16)}, {"int32", shard(data::TokenType::kInt32)}};
}

}  // namespace titan::fuzz
