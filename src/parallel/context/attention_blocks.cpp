#include "parallel/context/attention_blocks.h"

#include <algorithm>

namespace titan::parallel {
namespace {

// Returns the number of tokens of `ranges` before `position`, which is the place of that position if it is in them.
std::int64_t place_of(const TokenRanges& ranges, std::int64_t position) {
  std::int64_t before = 0;
  for (const TokenRange& range : ranges) {
    if (position <= range.begin) break;
    before += std::min(position, range.end) - range.begin;
  }
  return before;
}

bool sees_all(const AttentionBlock& block) { return block.offset == block.keys; }

// Adds a block, or extends the last one by it: by further queries that see the same keys, or by the next rows of its
// triangle.
void append(std::vector<AttentionBlock>& blocks, const AttentionBlock& next) {
  if (next.keys == 0) return;
  if (!blocks.empty()) {
    AttentionBlock& last = blocks.back();
    const bool is_adjacent = last.first_row == next.first_row && last.rows == next.rows &&
                             last.first_query + last.queries == next.first_query && last.first_key == next.first_key;
    if (is_adjacent && sees_all(last) && sees_all(next) && last.keys == next.keys) {
      last.queries += next.queries;
      return;
    }
    if (is_adjacent && !sees_all(last) && !sees_all(next) && next.keys == last.keys + next.queries) {
      last.queries += next.queries;
      last.keys = next.keys;
      return;
    }
  }
  blocks.push_back(next);
}

// The part of a document that is in one range of the queries' tokens.
struct Segment {
  std::int64_t document;    // where the document begins
  std::int64_t begin, end;  // positions of the queries
};

class Blocks {
 public:
  Blocks(const TokenRanges& query_tokens, const TokenRanges& key_tokens)
      : query_tokens_(query_tokens), key_tokens_(key_tokens) {}

  // Adds the blocks of one document, from `begin` to `end` of the rows.
  void add_document(std::int64_t first_row, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    for (const TokenRange& range : query_tokens_) {
      const Segment segment{begin, std::max(begin, range.begin), std::min(end, range.end)};
      if (segment.begin < segment.end) add(first_row, rows, segment);
    }
  }

  std::vector<AttentionBlock> take() { return std::move(blocks_); }

 private:
  // The queries of a segment see the keys before it, and if this rank has the keys of the segment, the triangle of
  // these, which follow the others.
  void add(std::int64_t first_row, std::int64_t rows, const Segment& segment) {
    const std::int64_t queries = segment.end - segment.begin;
    AttentionBlock block{.first_row = first_row,
                         .rows = rows,
                         .first_query = place_of(query_tokens_, segment.begin),
                         .queries = queries,
                         .first_key = place_of(key_tokens_, segment.document)};
    const std::int64_t before = place_of(key_tokens_, segment.begin) - block.first_key;
    const bool has_own = place_of(key_tokens_, segment.end) - place_of(key_tokens_, segment.begin) == queries;
    block.keys = has_own ? before + queries : before;
    block.offset = before;
    append(blocks_, block);
  }

  const TokenRanges& query_tokens_;
  const TokenRanges& key_tokens_;
  std::vector<AttentionBlock> blocks_;
};

}  // namespace

std::vector<AttentionBlock> attention_blocks(const TokenRanges& query_tokens, const TokenRanges& key_tokens,
                                             std::int64_t rows, std::int64_t length, const at::Tensor& lengths) {
  Blocks blocks(query_tokens, key_tokens);
  if (lengths.numel() == rows) {
    blocks.add_document(0, rows, 0, length);
    return blocks.take();
  }
  std::int64_t row = 0, position = 0;
  for (const std::int64_t document : at::IntArrayRef(lengths.const_data_ptr<std::int64_t>(), lengths.numel())) {
    blocks.add_document(row, 1, position, position + document);
    position += document;
    if (position == length) position = 0, ++row;
  }
  return blocks.take();
}

}  // namespace titan::parallel
