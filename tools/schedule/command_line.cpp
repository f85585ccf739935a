#include "tools/schedule/command_line.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace penstock::tools {

CommandLine::CommandLine(std::string usage_text, std::string about_text)
    : usage(std::move(usage_text)), about(std::move(about_text)) {
  options.add_options()("help", "this text");
}

bool CommandLine::parse(const Words& words, const char* positional, int most_positional) {
  po::positional_options_description names;
  if (positional != nullptr) names.add(positional, most_positional);
  po::options_description all;
  all.add(options).add(named);
  po::store(
      po::command_line_parser(words)
          .options(all)
          .positional(names)
          .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
          .run(),
      values);
  if (values.contains("help")) {
    std::cout << "Usage: penstock-schedule " << usage << "\n\n" << about << "\n\n" << options;
    return false;
  }
  if (positional != nullptr && most_positional == 1 && !values.contains(positional)) {
    throw std::invalid_argument("NAME is missing; expected penstock-schedule " + usage);
  }
  po::notify(values);
  return true;
}

bool CommandLine::given(const char* option) const {
  return values.contains(option) && !values[option].defaulted();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file || std::filesystem::is_directory(path)) {
    throw std::runtime_error(path + " cannot be read");
  }
  return text;
}

void write_output(const std::string& path, std::string_view text) {
  if (path.empty()) {
    std::cout << text;
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error(path + " could not be written");
}

}  // namespace penstock::tools
