// The text of sweep_report.html (see lab/page/CMakeLists.txt), with a placeholder for its data.
#pragma once

namespace titan::sweep {

extern const char* const kReportTemplate;

}  // namespace titan::sweep
