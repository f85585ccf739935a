#include "tools/schedule/text_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace penstock::tools {
namespace {

std::string formatted(const char* format, double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      out += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string short_number(double value) {
  return formatted("%.6g", value);
}

std::string percent(double ratio) {
  // What is left of adding up idle times is no idle time.
  return formatted("%.3g %%", std::abs(ratio) < 1e-12 ? 0.0 : 100.0 * ratio);
}

}  // namespace penstock::tools
