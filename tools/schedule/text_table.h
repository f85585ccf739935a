// A table in plain text, its columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace penstock::tools {

// The first row is the heading. The first column is flush left, the others flush right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

// "33", "0.0125": six digits, as short as they can be.
std::string short_number(double value);
// "37.5 %".
std::string percent(double ratio);

}  // namespace penstock::tools
