// Reads the prompts of `titan-train generate` from a file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace titan {

struct GivenPrompt {
  std::string text;           // "" if `messages` are given
  std::string messages = {};  // a JSON array of messages, the conversation to answer; "" if `text` is given
  std::string where = {};     // "line 3 of prompts.txt", for errors; "" for a prompt of the command line
};

// Returns the prompts in the order of the file's lines; empty lines are skipped. Each line of a .jsonl file is an
// object with "prompt", a text, or with "messages", objects with "role" and "content", which need `is_chat`; other
// members are ignored. Each line of any other file is a prompt itself. Throws ConfigError naming the line.
std::vector<GivenPrompt> read_prompt_file(const std::filesystem::path& file, bool is_chat);

}  // namespace titan
