// report.html of this folder as text, with the place of its data in it.
#pragma once

namespace titan::runs {

extern const char* const kReportTemplate;

}  // namespace titan::runs
