// The text of runs_report.html (see lab/page/CMakeLists.txt), with a placeholder for its data.
#pragma once

namespace titan::runs {

extern const char* const kReportTemplate;

}  // namespace titan::runs
