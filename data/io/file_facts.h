// Knows files of data by names, sizes, and checksums that cost little however large the files are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace titan::data {

struct FileFacts {
  std::string name;             // below the folder of the data, with bytes that are not UTF-8 as "\xE9"
  std::uint64_t size = 0;       // bytes
  std::int64_t changed_ns = 0;  // time of the last change
  // CRC-32 of all bytes up to 1 MiB; of larger files of blocks of 64 KiB, evenly spread, the first and the last among
  // them: a terabyte in files of a gigabyte is known by a gigabyte. An edit between the blocks shows in the time.
  std::uint32_t checksum = 0;
};

// Returns the facts of `files`, which lie in `root`, begin with it or are it. Reads at most 1 MiB of each, of more than
// 1,000 files 128 KiB, and of more than 10,000 nothing: these are one entry, with the sum of their sizes and a checksum
// of names and sizes. Throws DataError for a file that cannot be read.
std::vector<FileFacts> facts_of(const std::vector<std::filesystem::path>& files, const std::filesystem::path& root);

nlohmann::ordered_json to_json(const std::vector<FileFacts>& files);
// Throws nlohmann::json::exception for what to_json() did not make.
std::vector<FileFacts> file_facts_from_json(const nlohmann::ordered_json& json);

// Returns what differs, at most three files by name, in words: "a.jsonl had 10 bytes and has 12"; "" for the same data.
// Files that are read as a whole may have been copied or touched since.
std::string file_differences(const std::vector<FileFacts>& before, const std::vector<FileFacts>& now);

// The files of several datasets, in their order, as text, and what differs between two such texts, as above.
std::string facts_to_text(const std::vector<std::vector<FileFacts>>& datasets);
std::string differences_of_texts(const std::string& before, const std::string& now);

}  // namespace titan::data
