#include "tests/repo/layer_rule.h"

#include <algorithm>
#include <map>
#include <regex>

namespace penstock::repo_test {
namespace {

const std::map<std::string, std::set<std::string>>& allowed_layers() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"schedule", {}},
      {"tensor", {}},
      {"comm", {"tensor"}},
      {"model", {"tensor", "comm"}},
      {"checkpoint", {"tensor", "comm"}},
      {"engine", {"schedule", "tensor", "comm", "model", "checkpoint"}},
  };
  return kAllowed;
}

// A library from outside: the headers and CMake targets it comes by, and the folders that may use
// it.
struct Vendor {
  std::string name;
  std::regex header;
  std::regex target;
  std::vector<std::string> folders;
};

const std::vector<Vendor>& vendors() {
  static const std::vector<Vendor> kVendors = {
      {"Highway", std::regex("hwy/.*"), std::regex("hwy::.*"), {"tensor"}},
      {"BLAS", std::regex("cblas.*\\.h|openblas.*\\.h"), std::regex("BLAS::.*"), {"tensor"}},
      {"OpenMP", std::regex("omp\\.h"), std::regex("OpenMP::.*"), {"tensor"}},
      {"threads",
       std::regex("pthread\\.h|sched\\.h"),
       std::regex("Threads::.*"),
       {"tensor", "comm", "checkpoint", "engine"}},
      {"CUDA",
       std::regex("cuda.*\\.h(pp)?|cublas.*\\.h|nvtx3/.*\\.h|mma\\.h"),
       std::regex("CUDA::.*"),
       {"tensor/cuda", "comm/nccl"}},
      {"NCCL", std::regex("nccl\\.h"), std::regex("NCCL::.*"), {"comm/nccl"}},
      {"MPI", std::regex("mpi\\.h"), std::regex("MPI::.*"), {"comm/mpi"}},
      {"JSON",
       std::regex("nlohmann/.*"),
       std::regex("nlohmann_json::.*"),
       {"schedule/io", "model/zoo", "checkpoint", "engine"}},
      {"xxHash", std::regex("xxhash\\.h"), std::regex(".*xxhash.*"), {"checkpoint", "engine"}},
      {"POSIX",
       std::regex("unistd\\.h|fcntl\\.h|signal\\.h|sys/.*"),
       std::regex("-"),
       {"tensor", "comm", "model/data", "checkpoint", "engine"}},
  };
  return kVendors;
}

std::string layer_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool inside(const std::string& path, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return path.starts_with(folder + "/"); });
}

// <vector>, <cstdint>: no folder and no extension.
bool is_standard(const std::string& header) {
  return header.find_first_of("./") == std::string::npos;
}

std::string check_layer_include(const std::string& path, const std::string& header,
                                const std::set<std::string>& public_headers) {
  const std::string own = layer_of(path);
  const std::string other = layer_of(header);
  if (!allowed_layers().contains(other)) {
    return "includes \"" + header + "\"; expected a path from the root that begins with a layer";
  }
  if (other != own && !allowed_layers().at(own).contains(other)) {
    return own + " may not include " + other + ": \"" + header + "\"";
  }
  const bool is_public = public_headers.contains(header);
  if (other != own && !is_public) return "includes a private header of " + other + ": " + header;
  if (public_headers.contains(path) && !is_public) {
    return "is installed but includes \"" + header + "\", which is not";
  }
  return {};
}

std::string check_vendor_include(const std::string& path, const std::string& header,
                                 const std::set<std::string>& public_headers) {
  if (is_standard(header)) return {};
  for (const Vendor& vendor : vendors()) {
    if (!std::regex_match(header, vendor.header)) continue;
    if (public_headers.contains(path)) {
      return "is installed, so it may not include <" + header + "> (" + vendor.name + ")";
    }
    if (!inside(path, vendor.folders))
      return vendor.name + " may not be used here: <" + header + ">";
    return {};
  }
  return "includes <" + header + ">, which no layer may; see tests/repo/layer_rule.cpp";
}

}  // namespace

std::vector<std::string> layers() {
  return {"schedule", "tensor", "comm", "model", "checkpoint", "engine"};
}

std::vector<std::string> include_violations(const std::string& path, std::string_view text,
                                            const std::set<std::string>& public_headers) {
  static const std::regex kInclude("[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"].*");
  std::vector<std::string> result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(text.substr(begin, end - begin));
    begin = end + 1;
    std::smatch match;
    if (!std::regex_match(line, match, kInclude)) continue;
    const std::string violation = match[1] == "\""
                                      ? check_layer_include(path, match[2], public_headers)
                                      : check_vendor_include(path, match[2], public_headers);
    if (!violation.empty()) result.push_back(path + " " + violation);
  }
  return result;
}

std::string link_violation(const std::string& layer, const std::string& library) {
  static const std::regex kOwn("penstock(::|_)(.*)");
  std::smatch match;
  if (std::regex_match(library, match, kOwn)) {
    if (allowed_layers().at(layer).contains(match[2])) return {};
    return layer + " may not link " + library;
  }
  for (const Vendor& vendor : vendors()) {
    if (!std::regex_match(library, vendor.target)) continue;
    const bool allowed =
        std::any_of(vendor.folders.begin(), vendor.folders.end(),
                    [&](const std::string& folder) { return layer_of(folder) == layer; });
    return allowed ? "" : layer + " may not link " + library;
  }
  return layer + " links " + library + ", which no layer may; see tests/repo/layer_rule.cpp";
}

}  // namespace penstock::repo_test
