#pragma once

namespace titan_null {

class Stream;

// Counts the launch of a kernel and lets it fail if a rule says so. The kernel does not run.
void launch(const char* kernel, Stream& stream);

}  // namespace titan_null
