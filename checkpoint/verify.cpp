#include "checkpoint/verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/error.h"
#include "checkpoint/hash.h"
#include "checkpoint/safetensors.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMostFaultsShown = 8;

// A piece as one file should hold it.
struct Expected {
  tensor::DType dtype;
  tensor::Shape shape;
  std::uint64_t checksum;
};
using Contents = std::map<std::string, Expected, std::less<>>;  // by name in the file

std::map<std::string, Contents> contents_of_files(const Manifest& manifest) {
  std::map<std::string, Contents> files;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      files[piece.file].emplace(
          stored_name(name, tensor.shape, piece.region),
          Expected{tensor.dtype, piece.region.stored_shape(tensor.shape), piece.checksum});
    }
  }
  return files;
}

std::uint64_t checksum_of_range(const FileReader& file, std::uint64_t begin, std::uint64_t end) {
  Checksum checksum;
  std::vector<std::byte> block(std::min<std::uint64_t>(kBlockBytes, end - begin));
  for (std::uint64_t done = begin; done < end; done += block.size()) {
    block.resize(std::min<std::uint64_t>(block.size(), end - done));
    file.read(done, block);
    checksum.update(block);
  }
  return checksum.value();
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

// How the tensors in a file differ from what the manifest says, by its header.
std::optional<std::string> header_fault(const SafetensorsFile& file, const Contents& expected) {
  for (const auto& [name, piece] : expected) {
    const StoredTensor* stored = file.find(name);
    if (stored == nullptr) return "tensor \"" + name + "\" is missing from it";
    if (stored->dtype != piece.dtype || stored->shape != piece.shape) {
      return "tensor \"" + name + "\" is " + std::string(name_of(stored->dtype)) + " " +
             stored->shape.to_string() + "; expected " + std::string(name_of(piece.dtype)) + " " +
             piece.shape.to_string();
    }
  }
  for (const StoredTensor& stored : file.tensors()) {
    if (!expected.contains(stored.name)) {
      return "it holds the unexpected tensor \"" + stored.name + "\"";
    }
  }
  return std::nullopt;
}

// The tensors whose data were changed.
std::vector<std::string> changed_tensors(FileSystem& file_system, const SafetensorsFile& file,
                                         const Contents& expected) {
  const std::unique_ptr<FileReader> raw = file_system.open(file.path());
  std::uint64_t data_bytes = 0;
  for (const StoredTensor& stored : file.tensors()) data_bytes = std::max(data_bytes, stored.end);
  const std::uint64_t data_begin = raw->size() - data_bytes;
  std::vector<std::string> changed;
  for (const auto& [name, piece] : expected) {
    const StoredTensor& stored = file.at(name);
    const std::uint64_t actual =
        checksum_of_range(*raw, data_begin + stored.begin, data_begin + stored.end);
    if (actual != piece.checksum) changed.push_back(name);
  }
  return changed;
}

class FileCheck {
 public:
  FileCheck(FileSystem& file_system, fs::path directory, const Manifest& manifest)
      : file_system_(file_system),
        directory_(std::move(directory)),
        manifest_(manifest),
        contents_(contents_of_files(manifest)) {}

  // What is wrong with a file, if anything.
  std::optional<std::string> fault(const std::string& name) {
    const fs::path path = directory_ / name;
    const auto says = [&](const std::string& what) { return "[" + path.string() + "] " + what; };
    const FileKind kind = file_system_.kind(path);
    if (kind != FileKind::kFile) return says(std::string(name_of(kind)) + "; " + names_in(name));
    const FileFacts& facts = manifest_.files.find(name)->second;
    const std::unique_ptr<FileReader> file = file_system_.open(path);
    const std::uint64_t size = file->size();
    const std::uint64_t checksum = checksum_of_range(*file, 0, size);
    const bool same = size == facts.bytes && checksum == facts.checksum;
    std::string what;
    if (size != facts.bytes) {
      what = "has " + std::to_string(size) + " bytes; expected " + std::to_string(facts.bytes);
    } else if (!same) {
      what = "its checksum is " + to_hex(checksum) + "; expected " + to_hex(facts.checksum);
    }
    if (!same) {
      for (const auto& [other, other_facts] : manifest_.files) {
        if (other_facts.bytes == size && other_facts.checksum == checksum) {
          what += "; it is what " + other + " should be: the files were swapped or copied";
        }
      }
    }
    const std::string detail = tensor_fault(path, contents_[name], same);
    if (same && detail.empty()) return std::nullopt;
    return says(what + (what.empty() || detail.empty() ? "" : "; ") + detail);
  }

 private:
  std::string names_in(const std::string& file) {
    std::vector<std::string> names;
    for (const auto& [name, unused] : contents_[file]) names.push_back(name);
    return names.empty() ? "it holds no tensors" : "it holds tensors " + quoted_list(names);
  }

  // An error of the file, which is named already.
  static std::string without_path(std::string error, const fs::path& path) {
    const std::string named = "[" + path.string() + "] ";
    if (error.starts_with(named)) error.erase(0, named.size());
    return error;
  }

  // Which tensor is at fault; empty when none is.
  std::string tensor_fault(const fs::path& path, const Contents& expected, bool same) {
    try {
      const SafetensorsFile file = SafetensorsFile::open(path, file_system_);
      if (const auto fault = header_fault(file, expected)) return *fault;
      if (same) return "";
      const std::vector<std::string> changed = changed_tensors(file_system_, file, expected);
      return changed.empty() ? "the header was changed"
                             : "the data of " + quoted_list(changed) + " were changed";
    } catch (const FileError& error) {
      return "it cannot be read: " + without_path(error.what(), path);
    }
  }

  FileSystem& file_system_;
  fs::path directory_;
  const Manifest& manifest_;
  std::map<std::string, Contents> contents_;
};

}  // namespace

std::vector<std::string> share_of_files(const Manifest& manifest, int rank, int ranks) {
  std::vector<std::pair<std::uint64_t, std::string>> files;
  for (const auto& [name, facts] : manifest.files) {
    if (name != kEngineFile) files.emplace_back(facts.bytes, name);
  }
  std::sort(files.rbegin(), files.rend());  // the largest first, each to who has least
  std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks));
  std::vector<std::string> mine;
  for (auto& [bytes, name] : files) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += bytes;
    if (least - load.begin() == rank) mine.push_back(std::move(name));
  }
  std::sort(mine.begin(), mine.end());  // faults are told in this order
  return mine;
}

std::vector<std::string> faults_of_files(FileSystem& file_system, const fs::path& directory,
                                         const Manifest& manifest,
                                         const std::vector<std::string>& files) {
  FileCheck check(file_system, directory, manifest);
  std::vector<std::string> faults;
  for (const std::string& name : files) {
    if (auto fault = check.fault(name)) faults.push_back(std::move(*fault));
  }
  return faults;
}

std::vector<std::string> faults_of_sizes(FileSystem& file_system, const fs::path& directory,
                                         const Manifest& manifest) {
  std::vector<std::string> faults;
  const auto add = [&](std::string_view name, const std::string& what) {
    faults.push_back("[" + (directory / name).string() + "] " + what);
  };
  if (!manifest.files.contains(kEngineFile)) {
    add(kManifestFile, "does not list " + std::string(kEngineFile));
  }
  for (const auto& [name, facts] : manifest.files) {
    const FileKind kind = file_system.kind(directory / name);
    if (kind != FileKind::kFile) {
      add(name, std::string(name_of(kind)));
      continue;
    }
    const std::uint64_t size = file_system.open(directory / name)->size();
    if (size == facts.bytes) continue;
    add(name, "has " + std::to_string(size) + " bytes; expected " + std::to_string(facts.bytes));
  }
  return faults;
}

void require_none(const std::vector<std::string>& faults) {
  if (faults.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(faults.size(), kMostFaultsShown); ++i) {
    text += (i == 0 ? "" : "; ") + faults[i];
  }
  if (faults.size() > kMostFaultsShown) {
    text += "; and " + std::to_string(faults.size() - kMostFaultsShown) + " more files";
  }
  throw FileError(text);
}

void verify_files(FileSystem& file_system, const fs::path& directory, const Manifest& manifest,
                  const std::vector<std::string>& files) {
  require_none(faults_of_files(file_system, directory, manifest, files));
}

}  // namespace penstock::checkpoint
