// The fuzz targets, which read untrusted bytes. Each function is one target: fuzz_<name> (libFuzzer, preset "fuzz"),
// fuzz_inputs and fuzz_regression_test (every build) run the same code.
//
// A target returns true if the bytes, or a part of them that can be read alone, were accepted, and false if they were
// refused with a titan::Error meant for bad input. Any other exception of the code under test passes through and is a
// finding: c10::Error, std::bad_alloc, InternalError.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titan::fuzz {

// Reads a .metadata file.
bool run_metadata(std::string_view input);

// Reads one item of a .distcp file. First byte: the kind of the rest.
//   'f'  offset (4 bytes, little-endian), length (4 bytes; 2^32-1: up to the end), then the file
//   'v'  the pickle of a value, which is put into a valid archive: no checksum refuses a changed pickle
//   't'  length (2 bytes), a tensor's pickle of that many bytes, then its storage, in such an archive
bool run_distcp(std::string_view input);

// Loads a checkpoint folder. First byte: the number of ranks less 1, modulo 3 (rank 0 loads); then the length (2 bytes)
// of .metadata, as many bytes of it, and __0_0.distcp.
bool run_folder(std::string_view input);

// Reads a .safetensors file. First byte: 'f', then the file; or 'h', then its header up to the first zero byte, then
// the values.
bool run_safetensors(std::string_view input);

// Reads a run's configuration.
bool run_toml(std::string_view input);

// Reads a sweep's file and plans its trials.
bool run_sweep(std::string_view input);

// Reads tokenizer.json, and encodes a text.
bool run_tokenizer_json(std::string_view input);

// Reads tokenizer_config.json beside a good tokenizer.json, and the chat template in it.
bool run_tokenizer_config(std::string_view input);

// Reads a SentencePiece model, and encodes a text.
bool run_sentencepiece(std::string_view input);

// Renders a chat template. The text up to the first byte 0x1e is the template, the rest the conversation in JSON.
bool run_chat_template(std::string_view input);

// Reads a file of JSON lines as documents, conversations and records of a task.
bool run_jsonl(std::string_view input);

// Reads a shard of tokens: the length of PREFIX.bin (2 bytes), as many bytes of it, and PREFIX.idx.
bool run_tokens(std::string_view input);

// Reads the histories of a run: metrics.jsonl, validation.jsonl, events.jsonl and metrics.csv, all with these bytes.
bool run_metrics(std::string_view input);

// Reads a folder whose model.safetensors.index.json this is.
bool run_hub_index(std::string_view input);

// Reads a folder whose config.json and generation_config.json this is.
bool run_hub_config(std::string_view input);

// Reads a folder whose titan.checksums.json this is.
bool run_checksums(std::string_view input);

using Seeds = std::vector<std::pair<std::string, std::string>>;  // (name, bytes)

// Each returns valid inputs of a target, made by the program's own writers where it has one.
Seeds metadata_seeds();
Seeds distcp_seeds();
Seeds folder_seeds();
Seeds safetensors_seeds();
Seeds toml_seeds();
Seeds sweep_seeds();
Seeds tokenizer_json_seeds();
Seeds tokenizer_config_seeds();
Seeds sentencepiece_seeds();
Seeds chat_template_seeds();
Seeds jsonl_seeds();
Seeds tokens_seeds();
Seeds metrics_seeds();
Seeds hub_index_seeds();
Seeds hub_config_seeds();
Seeds checksums_seeds();

struct Target {
  const char* name;
  bool (*run)(std::string_view input);
  Seeds (*seeds)();
  const char* words;  // the part of dictionary.cpp whose words are put into inputs
};

inline constexpr int kNumCheckpointTargets = 4;  // the first ones

inline constexpr std::array<Target, 16> kTargets = {
    {{"metadata", run_metadata, metadata_seeds, "pickle"},
     {"distcp", run_distcp, distcp_seeds, "pickle"},
     {"folder", run_folder, folder_seeds, "pickle"},
     {"safetensors", run_safetensors, safetensors_seeds, "json"},
     {"toml", run_toml, toml_seeds, "toml"},
     {"sweep", run_sweep, sweep_seeds, "toml"},
     {"tokenizer_json", run_tokenizer_json, tokenizer_json_seeds, "json"},
     {"tokenizer_config", run_tokenizer_config, tokenizer_config_seeds, "json"},
     {"sentencepiece", run_sentencepiece, sentencepiece_seeds, "protobuf"},
     {"chat_template", run_chat_template, chat_template_seeds, "jinja"},
     {"jsonl", run_jsonl, jsonl_seeds, "json"},
     {"tokens", run_tokens, tokens_seeds, "protobuf"},
     {"metrics", run_metrics, metrics_seeds, "json"},
     {"hub_index", run_hub_index, hub_index_seeds, "json"},
     {"hub_config", run_hub_config, hub_config_seeds, "json"},
     {"checksums", run_checksums, checksums_seeds, "json"}}};

}  // namespace titan::fuzz
