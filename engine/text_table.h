// Numbers and tables as a person reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::engine {

// 1,234,567
std::string grouped(std::int64_t number);

// One line per row; columns are flush right, two blanks apart, and as wide as their widest cell.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace penstock::engine
