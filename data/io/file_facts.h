// Identifies data files by name, size, and a checksum that is cheap for files of any size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace titan::data {

struct FileFacts {
  std::string name;             // relative to the folder of the data; bytes that are not UTF-8 are written as "\xE9"
  std::uint64_t size = 0;       // bytes
  std::int64_t changed_ns = 0;  // time of the last change
  // CRC-32 of all bytes of files up to 1 MiB. Of larger files, CRC-32 of evenly spread blocks of 64 KiB, including the
  // first and the last: a terabyte in files of a gigabyte takes reading a gigabyte. An edit between the blocks shows in
  // changed_ns.
  std::uint32_t checksum = 0;
};

// Returns the facts of `files`. `root` is their folder, the prefix of their paths, or the only file. Reads files up to
// 1 MiB in full, and of larger ones 17 blocks, or 3 blocks if there are more than 1,000 files. More than 10,000 files
// are not read: the result is one entry with the sum of their sizes and a checksum of names and sizes. Throws DataError
// if a file cannot be read.
std::vector<FileFacts> facts_of(const std::vector<std::filesystem::path>& files, const std::filesystem::path& root);

nlohmann::ordered_json to_json(const std::vector<FileFacts>& files);
// Throws nlohmann::json::exception if `json` does not have the form that to_json() returns.
std::vector<FileFacts> file_facts_from_json(const nlohmann::ordered_json& json);

// Returns the differences in words, at most three files by name: "a.jsonl had 10 bytes and has 12"; "" for the same
// data. Ignores changed_ns for files up to 1 MiB, which may have been copied or touched since: their checksum covers
// all bytes.
std::string file_differences(const std::vector<FileFacts>& before, const std::vector<FileFacts>& now);

// Convert the files of several datasets, in order, to text, and compare two such texts as file_differences() does.
std::string facts_to_text(const std::vector<std::vector<FileFacts>>& datasets);
std::string differences_of_texts(const std::string& before, const std::string& now);

}  // namespace titan::data
