// Records of which each rank reads only a part are verified all the same: the checksums of the parts give that of the
// whole. What nobody read is read for that.
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
  std::vector<std::string> faults;  // records that were read as something else than was written
  std::vector<PartialRead> open;    // one entry a record of which some bytes were not read, sorted by place
};
// From the parts that all ranks together read. Deterministic: every rank that has the same reads gets the same verdict.
PartialReadVerdict judge_reads(std::vector<PartialRead> reads);

// Reads `record` as a whole; gives what is wrong, or "".
std::string verify_record(const InputFile& file, const PartialRead& record);

// Collective. `reads`: of every rank, the same on all ranks. The open records are shared out among the ranks. Throws
// DamagedCheckpoint on all ranks.
void verify_reads(const std::filesystem::path& folder, const std::string& action, std::vector<PartialRead> reads,
                  Ranks& ranks);

}  // namespace titan::checkpoint
