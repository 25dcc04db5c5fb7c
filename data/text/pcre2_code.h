// A compiled PCRE2 pattern, used only to implement split_regex.h.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>

namespace titan::data {

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
template <typename T>
using Pcre2Ptr = std::unique_ptr<T, FreePcre2>;

// Compiles `pattern` for UTF-8 with Unicode properties and the just-in-time compiler; a line ends with "\n". Throws
// DataError with the library's message.
Pcre2Ptr<pcre2_code> compile_pcre2(const std::string& pattern);

}  // namespace titan::data
