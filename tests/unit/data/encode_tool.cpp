// encode_tool TOKENIZER FILE.jsonl: prints one line of ids per document, then the decoded text's length in bytes.
// encode_tool --time TOKENIZER FILE.jsonl: for every line on standard input encodes all documents once, on one thread,
// and prints the seconds and the number of ids.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "data/sources/jsonl_source.h"
#include "data/tokenizer/tokenizer.h"

namespace {

void print_ids(const titan::data::Tokenizer& tokenizer, const titan::data::TextSource& source) {
  for (std::int64_t i = 0; i < source.num_documents(); ++i) {
    std::vector<std::int32_t> ids;
    tokenizer.encode(source.document(i), ids);
    for (const std::int32_t id : ids) std::printf("%d ", id);
    std::printf("/ %zu\n", tokenizer.decode(ids).size());
  }
}

void time_encoding(const titan::data::Tokenizer& tokenizer, const titan::data::TextSource& source) {
  std::vector<std::string> documents;
  for (std::int64_t i = 0; i < source.num_documents(); ++i) documents.push_back(source.document(i));
  std::vector<std::int32_t> ids;
  for (int byte = std::getchar(); byte != EOF; byte = std::getchar()) {
    std::size_t count = 0;
    const auto started = std::chrono::steady_clock::now();
    for (const std::string& document : documents) {
      ids.clear();
      tokenizer.encode(document, ids);
      count += ids.size();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    std::printf("%.9f %zu\n", seconds.count(), count);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool timed = argc == 4 && std::strcmp(argv[1], "--time") == 0;
  if (argc != 3 && !timed) {
    std::fputs("usage: encode_tool [--time] TOKENIZER FILE.jsonl\n", stderr);
    return 2;
  }
  try {
    const auto tokenizer = titan::data::make_tokenizer(argv[argc - 2]);
    const auto source = titan::data::open_jsonl_files(argv[argc - 1]);
    timed ? time_encoding(*tokenizer, *source) : print_ids(*tokenizer, *source);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_tool: %s\n", error.what());
    return 1;
  }
}
