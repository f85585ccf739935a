// Runs a command-line tool as a person does and keeps what it said.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#include "tests/support/command.h"

namespace penstock::tools {

struct ToolResult {
  int status;  // exit status; -1 if a signal ended it
  std::string out;
  std::string err;
};

// `arguments` go through the shell.
inline ToolResult run_tool(const std::string& tool, const std::string& arguments) {
  const auto err_path = std::filesystem::temp_directory_path() /
                        ("penstock_tool_" + std::to_string(getpid()) + ".err");
  const testing::Ended ended =
      testing::run_command("'" + tool + "' " + arguments + " 2>'" + err_path.string() + "'");
  ToolResult result{ended.status, ended.output, ""};
  std::ifstream err(err_path);
  result.err.assign(std::istreambuf_iterator<char>(err), {});
  std::filesystem::remove(err_path);
  return result;
}

}  // namespace penstock::tools
