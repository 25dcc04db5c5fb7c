#include "checkpoint/dcp/partial_reads.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

bool same_record(const PartialRead& a, const PartialRead& b) {
  return a.record_begin == b.record_begin && a.file == b.file;
}

std::string fault_of(const PartialRead& read, const std::string& detail) {
  return read.fqn + " in " + read.file + " at byte " + std::to_string(read.record_begin) +
         ": the stored bytes do not match their checksum: " + detail;
}

// Judges one record from its reads [begin, end).
void judge_record(const std::vector<PartialRead>& reads, std::size_t begin, std::size_t end,
                  PartialReadVerdict& verdict) {
  const PartialRead& record = reads[begin];
  std::vector<Piece> pieces;
  for (std::size_t i = begin; i < end; ++i) pieces.push_back(reads[i].piece);
  const auto differ = std::adjacent_find(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.begin == b.begin && a.size == b.size && a.crc != b.crc;
  });
  if (differ != pieces.end()) {
    verdict.faults.push_back(fault_of(record, "two ranks read other bytes at the same place"));
    return;
  }
  const auto joined = join_pieces(std::move(pieces));
  if (joined.size() != 1 || joined[0].begin != 0 || joined[0].size != record.record_size) {
    verdict.open.push_back(record);
  } else if (joined[0].crc != record.record_crc) {
    verdict.faults.push_back(fault_of(record, "the file was changed or damaged after it was written"));
  }
}

}  // namespace

std::string encode_reads(const std::vector<PartialRead>& reads) {
  Json json = Json::array();
  for (const PartialRead& read : reads)
    json.push_back({read.file, read.fqn, read.record_begin, read.record_size, read.record_crc, read.piece.begin,
                    read.piece.size, read.piece.crc});
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

std::vector<PartialRead> decode_reads(const std::string& bytes) {
  std::vector<PartialRead> reads;
  for (const auto& json : Json::from_msgpack(bytes)) {
    const auto number = [&](std::size_t i) { return json.at(i).get<std::uint64_t>(); };
    reads.push_back({json.at(0).get<std::string>(),
                     json.at(1).get<std::string>(),
                     number(2),
                     number(3),
                     static_cast<std::uint32_t>(number(4)),
                     {number(5), number(6), static_cast<std::uint32_t>(number(7))}});
  }
  return reads;
}

PartialReadVerdict judge_reads(std::vector<PartialRead> reads) {
  std::sort(reads.begin(), reads.end(), [](const PartialRead& a, const PartialRead& b) {
    return std::tie(a.file, a.record_begin, a.piece.begin, a.piece.size, a.piece.crc) <
           std::tie(b.file, b.record_begin, b.piece.begin, b.piece.size, b.piece.crc);
  });
  PartialReadVerdict verdict;
  for (std::size_t begin = 0, end = 0; begin < reads.size(); begin = end) {
    while (end < reads.size() && same_record(reads[begin], reads[end])) ++end;
    judge_record(reads, begin, end, verdict);
  }
  return verdict;
}

std::string verify_record(const InputFile& file, const PartialRead& record) {
  if (crc_of_range(file, record.record_begin, record.record_size) == record.record_crc) return "";
  return fault_of(record, "the file was changed or damaged after it was written");
}

void verify_reads(const fs::path& folder, const std::string& action, std::vector<PartialRead> reads, Ranks& ranks) {
  const PartialReadVerdict verdict = judge_reads(std::move(reads));
  if (!verdict.faults.empty()) throw DamagedCheckpoint(action + ": " + join(verdict.faults, "; "));
  if (verdict.open.empty()) return;
  // Assigns records to ranks, the largest first, each to the rank with the fewest bytes to read.
  std::vector<std::size_t> order(verdict.open.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return verdict.open[a].record_size > verdict.open[b].record_size;
  });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks.size()), 0);
  std::vector<std::size_t> mine;
  for (const std::size_t index : order) {
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += verdict.open[index].record_size;
    if (lightest - load.begin() == ranks.rank()) mine.push_back(index);
  }
  std::sort(mine.begin(), mine.end());
  on_every_rank(ranks, action, [&] {
    std::vector<std::string> faults;
    for (const std::size_t index : mine) {
      const PartialRead& record = verdict.open[index];
      const std::string fault = verify_record(InputFile(folder / record.file), record);
      if (!fault.empty()) faults.push_back(fault);
    }
    if (!faults.empty()) throw DamagedCheckpoint(join(faults, "; "));
    return std::string();
  });
}

}  // namespace titan::checkpoint
