// Added tokens ("added_tokens"), which are found in the text before anything else, as in the `tokenizers` package.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace titan::data {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not next to a letter or digit
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = true;    // matches normalized text; its own content is normalized too
  bool special = false;      // can be skipped in decoded text
  bool operator==(const AddedToken&) const = default;
};

// Finds the leftmost, then longest, match of several texts.
class TextMatcher {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
    std::int32_t value;
  };

  // Throws DataError for an empty text and for one that was added before.
  void add(std::string_view text, std::int32_t value);

  // Returns the first match that begins at `from` or later.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::vector<std::int32_t> values_ = {-1};                    // per node; 0 is the root
  std::vector<bool> begins_ = std::vector<bool>(256);          // bytes that some text begins with
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;
  using IdOfToken = std::function<std::optional<std::int32_t>(const std::string&)>;

  // `model_ids` finds the model's own tokens; `model_size` is their number and the first id of new tokens.
  AddedTokens(IdOfToken model_ids, std::int64_t model_size, Normalize normalize);

  // Adds tokens. A content that was added before gets the new properties; empty contents are skipped.
  void add(std::span<const AddedToken> tokens);

  // A piece of a text: an added token, or text between them.
  struct Piece {
    std::string_view text;
    std::int32_t id = -1;  // -1: not an added token
  };

  // Splits text that is not normalized yet at the tokens that are not `normalized`, and appends the pieces.
  void split_raw(std::string_view text, std::vector<Piece>& pieces) const { split(raw_, text, pieces); }
  // Splits normalized text at the tokens that are `normalized`, and appends the pieces.
  void split_normalized(std::string_view text, std::vector<Piece>& pieces) const { split(normalized_, text, pieces); }

  std::optional<std::int32_t> id_of(const std::string& content) const;
  bool is_special(std::int32_t id) const;
  // Texts of the tokens by id, for decoding.
  const std::map<std::int32_t, std::string>& texts() const { return texts_; }

 private:
  void rebuild();
  void split(const TextMatcher& matcher, std::string_view text, std::vector<Piece>& pieces) const;

  IdOfToken model_ids_;
  std::int64_t model_size_;
  Normalize normalize_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::map<std::int32_t, AddedToken> tokens_;
  std::map<std::int32_t, std::string> texts_;
  std::set<std::string> special_contents_;  // stay special whatever is added later
  TextMatcher raw_;
  TextMatcher normalized_;
};

}  // namespace titan::data
