#include "tests/repo/layer_rule.h"

#include <gtest/gtest.h>

#include "tests/repo/manifest.h"

namespace penstock::repo_test {
namespace {

std::size_t count(const std::string& path, const std::string& text) {
  static const std::set<std::string> kPublic = {"tensor/tensor.h", "comm/world.h"};
  return include_violations(path, text, kPublic).size();
}

TEST(LayerRule, CatchesWhatItForbids) {
  EXPECT_EQ(count("schedule/a.cpp", "#include \"tensor/tensor.h\"\n"), 1U);
  EXPECT_EQ(count("tensor/a.cpp", "#include \"comm/world.h\"\n"), 1U);
  EXPECT_EQ(count("tensor/a.cpp", "  #  include \"comm/world.h\"  // why\n"), 1U);
  EXPECT_EQ(count("checkpoint/a.cpp", "#include \"model/layer.h\""), 1U);
  EXPECT_EQ(count("tensor/a.cpp", "#include \"tensor.h\"\n"), 1U);
  EXPECT_EQ(count("comm/a.cpp", "#include \"tests/support/x.h\"\n"), 1U);
  EXPECT_EQ(count("comm/a.cpp", "#include \"tensor/cpu/gemm.h\"\n"), 1U);       // private there
  EXPECT_EQ(count("tensor/tensor.h", "#include \"tensor/cpu/gemm.h\"\n"), 1U);  // not installed
}

TEST(LayerRule, CatchesVendorHeadersOutOfPlace) {
  EXPECT_EQ(count("schedule/a.cpp", "#include <nlohmann/json.hpp>\n"), 1U);
  EXPECT_EQ(count("schedule/a.cpp", "#include <unistd.h>\n"), 1U);
  EXPECT_EQ(count("comm/local/a.cpp", "#include <mpi.h>\n"), 1U);
  EXPECT_EQ(count("comm/world.h", "#include <mpi.h>\n"), 1U);
  EXPECT_EQ(count("comm/device/a.cpp", "#include <cuda_runtime.h>\n"), 1U);
  EXPECT_EQ(count("tensor/cuda/a.cpp", "#include <nccl.h>\n"), 1U);
  EXPECT_EQ(count("tensor/tensor.h", "#include <hwy/highway.h>\n"), 1U);
  EXPECT_EQ(count("engine/a.cpp", "#include <spdlog/spdlog.h>\n"), 1U);
  EXPECT_EQ(count("tensor/a.cpp", "#include <vector>\n#include <mpi.h>\n#include <mpi.h>\n"), 2U);
}

TEST(LayerRule, AcceptsWhatItAllows) {
  EXPECT_EQ(count("comm/a.cpp", "#include \"tensor/tensor.h\"\n#include <vector>\n"), 0U);
  EXPECT_EQ(count("comm/mpi/a.cpp", "#include <mpi.h>\n"), 0U);
  EXPECT_EQ(count("comm/nccl/a.cpp", "#include <nccl.h>\n#include <cuda_runtime.h>\n"), 0U);
  EXPECT_EQ(count("tensor/cpu/private.h", "#include <hwy/highway.h>\n"), 0U);
  EXPECT_EQ(count("tensor/a.cpp", "#include \"tensor/cpu/gemm.h\"\n"), 0U);
  EXPECT_EQ(count("schedule/io/a.cpp", "#include <nlohmann/json.hpp>\n"), 0U);
  EXPECT_EQ(count("tensor/a.cpp", "// #include \"comm/world.h\"\n"), 0U);
}

TEST(LayerRule, HoldsForEveryFile) {
  const Manifest manifest = read_manifest();
  std::size_t files = 0;
  for (const std::string& layer : layers()) {
    for (const std::string& file : cpp_files(layer)) {
      ++files;
      for (const std::string& violation :
           include_violations(file, read_file(source_dir() / file), manifest.public_headers)) {
        ADD_FAILURE() << violation;
      }
    }
  }
  EXPECT_GE(files, manifest.public_headers.size());
}

TEST(LinkRule, CatchesWhatItForbids) {
  EXPECT_NE(link_violation("tensor", "penstock::comm"), "");
  EXPECT_NE(link_violation("checkpoint", "penstock_model"), "");
  EXPECT_NE(link_violation("model", "MPI::MPI_CXX"), "");
  EXPECT_NE(link_violation("engine", "spdlog::spdlog"), "");
  EXPECT_EQ(link_violation("comm", "penstock::tensor"), "");
  EXPECT_EQ(link_violation("comm", "MPI::MPI_CXX"), "");
}

TEST(LinkRule, HoldsForEveryTarget) {
  const Manifest manifest = read_manifest();
  for (const std::string& layer : layers()) ASSERT_TRUE(manifest.links.contains(layer)) << layer;
  EXPECT_EQ(manifest.links.size(), layers().size()) << "a library is no layer";
  EXPECT_FALSE(manifest.links.at("engine").empty());
  for (const auto& [layer, libraries] : manifest.links) {
    for (const std::string& library : libraries) EXPECT_EQ(link_violation(layer, library), "");
  }
}

}  // namespace
}  // namespace penstock::repo_test
