// report.html of this folder, made into a string by the build (CMakeLists.txt).
#pragma once

namespace titan::sweep {

extern const char* const kReportTemplate;

}  // namespace titan::sweep
