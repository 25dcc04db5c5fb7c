// encode_tool TOKENIZER FILE.jsonl: one line of ids a document, then the decoded text's length in bytes.
#include <cstdio>
#include <exception>
#include <vector>

#include "data/text_source.h"
#include "data/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: encode_tool TOKENIZER FILE.jsonl\n", stderr);
    return 2;
  }
  try {
    const auto tokenizer = titan::data::make_tokenizer(argv[1]);
    const auto source = titan::data::open_jsonl_files(argv[2]);
    for (std::int64_t i = 0; i < source->num_documents(); ++i) {
      std::vector<std::int32_t> ids;
      tokenizer->encode(source->document(i), ids);
      for (const std::int32_t id : ids) std::printf("%d ", id);
      std::printf("/ %zu\n", tokenizer->decode(ids).size());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_tool: %s\n", error.what());
    return 1;
  }
}
