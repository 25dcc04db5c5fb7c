#include "data/text/split_regex.h"

#include "base/error.h"
#include "data/text/pcre2_code.h"

namespace titan::data {
namespace {

constexpr std::size_t kJitStackStart = 64 << 10;
constexpr std::size_t kJitStackMost = 64 << 20;  // a match in a megabyte of one character may need much

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

const PCRE2_UCHAR* units(std::string_view text) { return reinterpret_cast<const PCRE2_UCHAR*>(text.data()); }

}  // namespace

Pcre2Ptr<pcre2_code> compile_pcre2(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  Pcre2Ptr<pcre2_code> code(
      pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, context));
  pcre2_compile_context_free(context);
  if (!code) throw DataError("PCRE2 at byte " + std::to_string(at) + ": " + message_of(error));
  if (const int jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE); jit != 0) {
    throw DataError("PCRE2's just-in-time compiler: " + message_of(jit));
  }
  return code;
}

struct SplitRegex::Code {
  Pcre2Ptr<pcre2_code> compiled;
};

struct SplitRegex::Scratch::Data {
  Pcre2Ptr<pcre2_match_data> match{pcre2_match_data_create(1, nullptr)};
  Pcre2Ptr<pcre2_jit_stack> stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};
  Pcre2Ptr<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
};

SplitRegex::Scratch::Scratch() : data_(std::make_unique<Data>()) {
  pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
  pcre2_set_match_limit(data_->context.get(), UINT32_MAX);  // long runs of spaces are tried repeatedly
}
SplitRegex::Scratch::Scratch(Scratch&&) noexcept = default;
SplitRegex::Scratch& SplitRegex::Scratch::operator=(Scratch&&) noexcept = default;
SplitRegex::Scratch::~Scratch() = default;

SplitRegex::SplitRegex(const std::string& oniguruma) : code_(std::make_unique<Code>()), pattern_(oniguruma) {
  try {
    code_->compiled = compile_pcre2(translate_pattern(oniguruma));
  } catch (const DataError& error) {
    throw DataError("the regular expression " + oniguruma + ": " + error.what());
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code_->compiled.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty)
    throw DataError("the regular expression " + oniguruma + " can match nothing, not even one character");
}
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

void SplitRegex::split(std::string_view text, bool only_matches, Scratch& scratch,
                       std::vector<std::string_view>& pieces) const {
  Scratch::Data& data = *scratch.data_;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.match.get());
  std::size_t at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_jit_match(code_->compiled.get(), units(text), text.size(), at, 0, data.match.get(), data.context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) throw DataError("the regular expression " + pattern_ + " failed: " + message_of(found));
    if (bounds[0] > at && !only_matches) pieces.push_back(text.substr(at, bounds[0] - at));
    pieces.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
    at = bounds[1];
  }
  if (at < text.size() && !only_matches) pieces.push_back(text.substr(at));
}

}  // namespace titan::data
