// Runs a command-line tool as a person does and keeps what it said.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

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
  const std::string command = "'" + tool + "' " + arguments + " 2>'" + err_path.string() + "'";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  ToolResult result;
  char block[4096];
  while (const std::size_t n = fread(block, 1, sizeof block, pipe)) result.out.append(block, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream err(err_path);
  result.err.assign(std::istreambuf_iterator<char>(err), {});
  std::filesystem::remove(err_path);
  return result;
}

}  // namespace penstock::tools
