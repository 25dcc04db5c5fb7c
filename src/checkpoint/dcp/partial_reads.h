// Verifies records that no rank reads completely, by combining the checksums of the parts. Missing bytes are read for
// the check.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/dcp/ranks.h"
#include "checkpoint/format/partial_read.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/file.h"

namespace titan::checkpoint {

std::string encode_reads(const std::vector<PartialRead>& reads);
std::vector<PartialRead> decode_reads(const std::string& bytes);

struct PartialReadVerdict {
  std::vector<std::string> faults;  // records whose bytes differ from those that were written
  std::vector<PartialRead> open;    // one entry per record with unread bytes, sorted by position
};
// Judges the parts that all ranks together read. Deterministic: the same reads give the same verdict on every rank.
PartialReadVerdict judge_reads(std::vector<PartialRead> reads);

// Reads the full `record`. Returns what is wrong with it, or "".
std::string verify_record(const InputFile& file, const PartialRead& record);

// Verifies `reads`, the reads of all ranks (the same on every rank). The open records are read, divided among the
// ranks. Collective. Throws DamagedCheckpoint on all ranks.
void verify_reads(const std::filesystem::path& folder, const std::string& action, std::vector<PartialRead> reads,
                  Ranks& ranks);

}  // namespace titan::checkpoint
