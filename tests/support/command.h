// Runs programs as a person or a launcher does, and keeps how they ended.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include <sys/wait.h>

namespace penstock::testing {

struct Ended {
  static constexpr int kTooSlow = 124;

  int status = -1;     // exit status; kTooSlow when it had to be stopped; -1: ended by a signal
  std::string output;  // standard output
};

// A command of the shell.
inline Ended run_command(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  Ended ended;
  std::array<char, 4096> block;
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), pipe)) {
    ended.output.append(block.data(), count);
  }
  const int status = pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// Runs `program`, a command with its arguments, as `ranks` processes; stops them all when they have
// not ended after so many seconds. `launcher` is mpirun with its flags. The output holds both
// streams of all ranks.
inline Ended run_processes(const std::string& launcher, int ranks, const std::string& program,
                           int seconds) {
  return run_command("timeout -k 5 " + std::to_string(seconds) + " " + launcher + " -n " +
                     std::to_string(ranks) + " " + program + " 2>&1");
}

// Whether a process has ended, now or within ten seconds.
inline bool ends(pid_t process) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (kill(process, 0) == 0) {
    if (std::chrono::steady_clock::now() >= limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace penstock::testing
