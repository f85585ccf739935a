// tools/gpu_check's table, from a bundle whose programs are stand-ins: what passes, fails, runs out
// of time or cannot run is told apart, and the exit status follows.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/tools/run_tool.h"

namespace penstock::tools {
namespace {

namespace fs = std::filesystem;

class GpuCheck : public ::testing::Test {
 protected:
  GpuCheck() {
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "path");
    for (const char* file : {"README.md", "tools/demo.json", "tools/gpu_check"}) {
      fs::copy(fs::path(PENSTOCK_SOURCE_DIR) / file, folder_.path());
    }
    fs::copy(fs::path(PENSTOCK_SOURCE_DIR) / "tools/support", folder_ / "support");
    for (const char* name :
         {"bin/tensor_cuda_parity_test_gpu", "bin/tensor_cuda_parity_test_gpu_plain",
          "bin/engine_device_parity_test_gpu", "bin/engine_device_parity_test_gpu_plain",
          "bin/penstock-train", "bin/penstock-bench", "path/nvidia-smi", "path/ldd",
          "path/python3"}) {
      make_program(name);
    }
  }

  void make_program(const std::string& name) {
    fs::copy(fs::path(PENSTOCK_SOURCE_DIR) / "tests/tools/gpu_check_stand_in.sh", folder_ / name);
  }

  // By step: its line of the table. The last line is that of "".
  std::map<std::string, std::string> run(const std::string& fake, int status,
                                         const std::string& options = "") {
    const ToolResult result = run_tool(
        "env", "FAKE='" + fake + "' PATH='" + (folder_ / "path").string() + ":'\"$PATH\" " +
                   PENSTOCK_PYTHON + " " + (folder_ / "gpu_check").string() + " --logs '" +
                   (folder_ / "logs").string() + "' --python '" +
                   (folder_ / "path/python3").string() + "' " + options);
    EXPECT_EQ(result.status, status) << result.out << result.err;
    std::map<std::string, std::string> lines;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);) {
      if (line.find("could not run; all") != std::string::npos) lines[""] = line;
      const std::size_t end = line.find("  ");
      if (end != std::string::npos && end > 0) lines[line.substr(0, end)] = line.substr(end);
    }
    return lines;
  }

  static void expect_row(const std::map<std::string, std::string>& lines, const std::string& step,
                         const std::string& result, const std::string& note) {
    ASSERT_TRUE(lines.contains(step)) << step;
    EXPECT_NE(lines.at(step).find("  " + result + "  "), std::string::npos) << lines.at(step);
    EXPECT_TRUE(lines.at(step).ends_with("  " + note)) << lines.at(step);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(GpuCheck, TellsWhatPassedAndWhatOneDeviceCannotShow) {
  make_program("path/compute-sanitizer");
  const auto lines = run("", 2);
  expect_row(lines, "device", "passed", "1 x NVIDIA H200, 580.1, 143771 MiB");
  expect_row(lines, "operations against double precision", "passed", "5 of 5 tests");
  expect_row(lines, "racecheck of operations", "passed", "4 of 4 tests");
  expect_row(lines, "training against the CPU", "passed", "4 of 4 tests");
  expect_row(lines, "two stages on one device", "passed", "4 of 4 tests");
  expect_row(lines, "two stages over NCCL", "could not run", "one device, not two");
  expect_row(lines, "penstock-train in two stages", "passed",
             "10 losses, at most 0.0e+00 off the CPU's");
  expect_row(lines, "speed of kernels", "passed", "device copy: 4100 GB/s");
  expect_row(lines, "attention beside cuDNN's", "passed",
             "cuDNN: 500 TFLOP/s forward, 400 backward; ours: 300, 200");
  expect_row(lines, "speed of GPT-2 1.5B", "passed", "1234 tokens/s, 41.5 % of 989 TFLOP/s");
  EXPECT_TRUE(lines.at("").starts_with("15 passed, 0 failed, 1 could not run")) << lines.at("");
}

TEST_F(GpuCheck, WithoutADeviceNothingRuns) {
  const auto lines = run("no-device", 2);
  expect_row(lines, "device", "could not run", "nvidia-smi sees no device");
  expect_row(lines, "memcheck of operations", "could not run", "no device");
  expect_row(lines, "speed of GPT-2 124M", "could not run", "no device");
  EXPECT_TRUE(lines.at("").starts_with("1 passed, 0 failed, 15 could not run")) << lines.at("");
}

TEST_F(GpuCheck, ADeviceThatCudaDoesNotSeeIsNone) {
  const auto lines = run("no-cuda", 2);
  expect_row(lines, "device", "passed", "1 x NVIDIA H200, 580.1, 143771 MiB");
  for (const char* step : {"operations against double precision", "two stages on one device",
                           "penstock-train in two stages", "speed of GPT-2 124M"}) {
    expect_row(lines, step, "could not run", "the CUDA runtime sees no device");
  }
}

TEST_F(GpuCheck, NamesWhatTheMachineLacks) {
  const auto lines = run("no-library", 2);
  // Unless the machine that runs this test has it where the loader does not look.
  if (lines.at("libraries").find("passed") != std::string::npos) GTEST_SKIP();
  expect_row(lines, "libraries", "could not run", "missing: libnccl.so.2");
  expect_row(lines, "training against the CPU", "could not run", "this machine lacks libnccl.so.2");
}

TEST_F(GpuCheck, WithoutASanitizerTheRestRuns) {
  const auto lines = run("", 2);
  if (lines.at("initcheck of operations").find("passed") != std::string::npos)
    GTEST_SKIP();  // there is one
  expect_row(lines, "initcheck of operations", "could not run",
             "there is no compute-sanitizer on the PATH or beside CUDA");
  expect_row(lines, "speed of kernels", "passed", "device copy: 4100 GB/s");
}

TEST_F(GpuCheck, WithoutPyTorchThereIsNothingToCompareWith) {
  expect_row(run("no-torch", 2), "attention beside cuDNN's", "could not run",
             "there is no PyTorch");
}

TEST_F(GpuCheck, CountsFailures) {
  make_program("path/compute-sanitizer");
  const auto lines = run("wrong race drift", 1);
  expect_row(lines, "operations against double precision", "FAILED",
             "2 of 5 tests passed, first Small/Op.Case/gelu");
  expect_row(lines, "racecheck of operations", "FAILED",
             "3 found by racecheck; 4 of 4 tests passed, status 9");
  expect_row(lines, "penstock-train in two stages", "FAILED",
             "10 losses, at most 2.0e-02 off the CPU's");
  expect_row(run("crash", 1), "operations against double precision", "FAILED",
             "1 of 5 tests passed, status -11");
}

TEST_F(GpuCheck, WhatDoesNotStartFailsAndTheRestRuns) {
  for (const char* name : {"bin/tensor_cuda_parity_test_gpu", "bin/penstock-train"}) {
    fs::resize_file(folder_ / name, 0);
    std::ofstream(folder_ / name) << "\x7f"
                                     "ELF, in part";
  }
  const auto lines = run("", 1);
  const std::string program = (fs::canonical(folder_.path()) / "bin/").string();
  for (const char* step : {"operations against double precision", "penstock-train in two stages"}) {
    ASSERT_TRUE(lines.contains(step));
    EXPECT_NE(lines.at(step).find("  FAILED  "), std::string::npos) << lines.at(step);
    EXPECT_NE(lines.at(step).find(program), std::string::npos) << lines.at(step);
  }
  expect_row(lines, "speed of kernels", "passed", "device copy: 4100 GB/s");
}

TEST_F(GpuCheck, EndsInTime) {
  const auto lines = run("slow", 1, "--seconds 5");
  expect_row(lines, "operations against double precision", "OUT OF TIME", "after 2 of 5 tests");
  expect_row(lines, "speed of GPT-2 1.5B", "OUT OF TIME", "before it had a number");
}

}  // namespace
}  // namespace penstock::tools
