// A command's options and the files it writes.
#pragma once

#include <string>
#include <string_view>

#include <boost/program_options.hpp>

#include "tools/schedule/commands.h"

namespace penstock::tools {

namespace po = boost::program_options;

// Options are added to `options`; what stands without a name goes to `positional`, if that is the
// name of one of `named`, which the help text leaves to `usage`. `usage` and `about` head the help
// text.
struct CommandLine {
  CommandLine(std::string usage_text, std::string about_text);

  // False when help was asked for, which is then printed. po::error for what cannot be read;
  // std::invalid_argument when the one word that `most_positional` 1 asks for is missing.
  bool parse(const Words& words, const char* positional = nullptr, int most_positional = 1);
  // Whether the user gave the option.
  bool given(const char* option) const;

  std::string usage;
  std::string about;
  po::options_description options{"Options"};
  po::options_description named;
  po::variables_map values;
};

// What the file holds; std::runtime_error naming it if it cannot be read.
std::string read_file(const std::string& path);
// To the file, or to standard output if the path is empty.
void write_output(const std::string& path, std::string_view text);

}  // namespace penstock::tools
