// Runs the regular expressions of Hugging Face pre-tokenizers, which are written for Oniguruma, on PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data {

// Returns a pattern with which PCRE2 matches the same text. Spells out classes (\s, \p{L}, ...) where PCRE2's Unicode
// version or definition differs, see unicode_category.h. Throws DataError naming what has no equivalent here: back
// references, word boundaries, \w, nested classes, caseless classes, ...
std::string translate_pattern(std::string_view oniguruma);

// Const calls may run on several threads, each with a Scratch of its own.
class SplitRegex {
 public:
  // The working memory of one thread's matches.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class SplitRegex;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  // Throws DataError when the pattern is wrong, cannot be translated, or matches the empty string.
  explicit SplitRegex(const std::string& oniguruma);
  SplitRegex(SplitRegex&&) noexcept;
  ~SplitRegex();

  // Appends the pieces of `text` (valid UTF-8): every match, and the text between matches unless `only_matches`.
  void split(std::string_view text, bool only_matches, Scratch& scratch, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_;  // as given, for messages
};

}  // namespace titan::data
