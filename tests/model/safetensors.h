// Reads safetensors files of f32 tensors that the tests trust; not the library's own reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace penstock::testing {

struct StoredTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline std::map<std::string, StoredTensor> read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::map<std::string, StoredTensor> tensors;
  const auto entries = nlohmann::json::parse(bytes.substr(8, header));
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const std::size_t begin = entry.at("data_offsets").at(0);
    const std::size_t end = entry.at("data_offsets").at(1);
    StoredTensor& tensor = tensors[name];
    tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
    tensor.values.resize((end - begin) / sizeof(float));
    std::memcpy(tensor.values.data(), bytes.data() + 8 + header + begin, end - begin);
  }
  return tensors;
}

}  // namespace penstock::testing
