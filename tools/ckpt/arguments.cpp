#include "tools/ckpt/arguments.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <stdexcept>
#include <utility>

namespace penstock::tools {

namespace fs = std::filesystem;

Arguments::Arguments(std::string usage, std::string about)
    : usage_(std::move(usage)), about_(std::move(about)) {
  options_.add_options()("help", "this text");
}

void Arguments::word(const char* name, const char* what, bool required) {
  auto* value = po::value<std::string>();
  if (required) value->required();
  words_.add_options()(name, value, what);
  order_.add(name, 1);
}

bool Arguments::parse(const Words& words) {
  po::options_description all;
  all.add(options_).add(words_);
  try {
    po::store(
        po::command_line_parser(words)
            .options(all)
            .positional(order_)
            .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
            .run(),
        values_);
    if (values_.contains("help")) {
      std::cout << "Usage: penstock-ckpt " << usage_ << "\n\n" << about_ << "\n\n" << options_;
      return false;
    }
    po::notify(values_);
  } catch (const po::too_many_positional_options_error&) {
    throw std::invalid_argument("too many words; expected penstock-ckpt " + usage_);
  } catch (const po::required_option& error) {
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    for (char& letter : name) {
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
    throw std::invalid_argument(name + " is missing; expected penstock-ckpt " + usage_);
  }
  return true;
}

std::optional<std::string> Arguments::optional_text(const char* name) const {
  if (!values_.contains(name)) return std::nullopt;
  return text(name);
}

fs::path directory_of_checkpoints(const fs::path& path) {
  const fs::path inside = path / "checkpoints";
  return !fs::exists(path / "latest") && fs::exists(inside / "latest") ? inside : path;
}

checkpoint::Reader open_path(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (fs::exists(clean / "manifest.json") || fs::exists(clean / "engine.json")) {
    const fs::path parent = clean.parent_path();
    return checkpoint::Reader::inspect(parent.empty() ? "." : parent, clean.filename().string());
  }
  return checkpoint::Reader::inspect(directory_of_checkpoints(clean));
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 99.5 ? "%.0f %s" : "%.3g %s", value,
                kUnits[unit]);
  return text;
}

std::string utc(std::int64_t nanoseconds_since_1970) {
  const auto seconds = static_cast<std::time_t>(nanoseconds_since_1970 / 1'000'000'000);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return "?";
  }
  return text;
}

std::string described(const checkpoint::TensorInfo& info) {
  return std::string(tensor::name_of(info.dtype)) + " " + info.shape.to_string();
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace penstock::tools
