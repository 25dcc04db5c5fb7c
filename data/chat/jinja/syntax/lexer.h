// Cuts the text of a template into tokens, with Jinja's rules for white space (trim_blocks and lstrip_blocks are on).
#pragma once

#include <string>
#include <vector>

#include "data/chat/jinja/syntax/template_source.h"
#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

enum class TokenKind { kData, kBlockBegin, kBlockEnd, kPrintBegin, kPrintEnd, kName, kLiteral, kOperator, kEnd };

struct Token {
  TokenKind kind;
  std::size_t at;    // offset in the source
  std::string text;  // data, name, or operator
  Value literal;     // string or number
};

// Throws DataError for text that Jinja does not accept, and for what is not supported in literals.
std::vector<Token> tokenize(const Source& source);

}  // namespace titan::data::jinja
