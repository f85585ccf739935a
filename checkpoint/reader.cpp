#include <utility>

#include "checkpoint/agreement.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fill.h"
#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_reader.h"
#include "checkpoint/publish.h"
#include "checkpoint/verify.h"
#include "comm/world.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "load";
constexpr std::string_view kNothingLoaded = "nothing was loaded";

std::string tags_here(FileSystem& file_system, const fs::path& directory) {
  std::string text;
  for (const std::string& tag : complete_tags(file_system, directory)) {
    text += (text.empty() ? "; complete tags here: " : ", ") + tag;
  }
  return text.empty() ? "; there is no complete tag here" : text;
}

std::string tag_to_load(FileSystem& file_system, const fs::path& directory,
                        const std::optional<std::string>& tag) {
  if (file_system.kind(directory) != FileKind::kDirectory) {
    throw FileError("[" + directory.string() + "] is not a directory here; looked for " +
                    (tag ? "the checkpoint " + *tag : "the file `latest`") + " in it");
  }
  if (!tag && file_system.kind(directory / kLatestFile) == FileKind::kMissing) {
    throw FileError("[" + (directory / kLatestFile).string() +
                    "] is missing; expected the tag to load; give a tag" +
                    tags_here(file_system, directory));
  }
  const std::string found = tag ? *tag : read_latest(file_system, directory);
  validate_tag(found);
  return found;
}

// The directory to read: the tag's, or what a save that was cut short was about to replace.
fs::path find_complete(FileSystem& file_system, const Places& places) {
  fs::path path = places.complete;
  if (file_system.kind(path) == FileKind::kMissing &&
      file_system.kind(places.old) != FileKind::kMissing) {
    path = places.old;
  }
  if (file_system.kind(path) != FileKind::kMissing) {
    std::string missing;
    for (const std::string_view file : {kManifestFile, kEngineFile}) {
      const FileKind kind = file_system.kind(path / file);
      if (kind == FileKind::kFile) continue;
      missing += (missing.empty() ? "" : ", ") + std::string(file);
      if (kind != FileKind::kMissing) missing += ", which " + std::string(name_of(kind));
    }
    if (missing.empty()) return path;
    throw FileError("[" + path.string() + "] is incomplete: missing " + missing +
                    tags_here(file_system, places.directory));
  }
  if (file_system.kind(places.temporary) != FileKind::kMissing) {
    throw FileError(
        "[" + places.complete.string() + "] is incomplete: missing " + std::string(kManifestFile) +
        ", or the last renaming; " + places.temporary.filename().string() +
        " is what a save left that was cut short" + tags_here(file_system, places.directory));
  }
  throw FileError("[" + places.complete.string() + "] does not exist" +
                  tags_here(file_system, places.directory));
}

}  // namespace

struct Reader::State {
  FileSystem& file_system;
  std::string tag;
  fs::path path;
  Manifest manifest;
  std::uint64_t manifest_checksum = 0;
  std::string engine_json;
  std::map<std::string, TensorInfo, std::less<>> tensors;
  PieceReader pieces;

  explicit State(FileSystem& files) : file_system(files), pieces(files) {}
  void find(const fs::path& directory, const std::optional<std::string>& wanted);
  void read_engine_json();
};

void Reader::State::find(const fs::path& directory, const std::optional<std::string>& wanted) {
  tag = tag_to_load(file_system, directory, wanted);
  path = find_complete(file_system, Places(directory, tag));
  const fs::path manifest_path = path / kManifestFile;
  const std::string text = read_text(file_system, manifest_path);
  manifest = parse_manifest(manifest_path.string(), text);
  manifest_checksum = checksum_of(path.filename().string() + text);
  check_tiling(manifest);
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.emplace(name, TensorInfo{tensor.dtype, tensor.shape});
    for (const ManifestPiece& piece : tensor.pieces) {
      if (!manifest.files.contains(piece.file)) {
        throw FileError("[" + manifest_path.string() + "] tensor \"" + name + "\" is in " +
                        piece.file + ", which is not among the files");
      }
    }
  }
  read_engine_json();
}

void Reader::State::read_engine_json() {
  const auto facts = manifest.files.find(kEngineFile);
  if (facts == manifest.files.end()) {
    throw FileError("[" + (path / kManifestFile).string() + "] does not list engine.json");
  }
  engine_json = read_text(file_system, path / kEngineFile);
  if (engine_json.size() != facts->second.bytes ||
      checksum_of(engine_json) != facts->second.checksum) {
    throw FileError("[" + (path / kEngineFile).string() + "] was changed: it has " +
                    std::to_string(engine_json.size()) + " bytes and checksum " +
                    to_hex(checksum_of(engine_json)) + "; expected " +
                    std::to_string(facts->second.bytes) + " and " + to_hex(facts->second.checksum));
  }
}

Reader Reader::open(comm::World& world, const fs::path& directory,
                    const std::optional<std::string>& tag, FileSystem& file_system) {
  auto state = std::make_unique<State>(file_system);
  agree(world, kWhere, failure_of([&] { state->find(directory, tag); }), kNothingLoaded);
  agree_same(world, kWhere, state->manifest_checksum,
             state->path.string() + " saved at " + std::to_string(state->manifest.saved_at));
  agree(world, kWhere, failure_of([&] {
          verify_files(file_system, state->path, state->manifest,
                       share_of_files(state->manifest, world.rank(), world.size()));
        }),
        kNothingLoaded);
  return Reader(std::move(state));
}

Reader Reader::inspect(const fs::path& directory, const std::optional<std::string>& tag,
                       FileSystem& file_system) {
  auto state = std::make_unique<State>(file_system);
  state->find(directory, tag);
  return Reader(std::move(state));
}

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

const std::string& Reader::tag() const {
  return state_->tag;
}
const fs::path& Reader::path() const {
  return state_->path;
}
const std::string& Reader::engine_json() const {
  return state_->engine_json;
}
const std::map<std::string, TensorInfo, std::less<>>& Reader::tensors() const {
  return state_->tensors;
}
std::int64_t Reader::saved_at() const {
  return state_->manifest.saved_at;
}

std::map<std::string, std::uint64_t> Reader::files() const {
  std::map<std::string, std::uint64_t> files;
  for (const auto& [name, facts] : state_->manifest.files) files.emplace(name, facts.bytes);
  return files;
}

std::vector<StoredPiece> Reader::pieces(std::string_view name) const {
  (void)info(name);  // throws when there is none
  std::vector<StoredPiece> pieces;
  for (const ManifestPiece& piece : state_->manifest.tensors.find(name)->second.pieces) {
    pieces.push_back({piece.file, piece.region});
  }
  return pieces;
}

std::vector<std::string> Reader::faults(Check check) const {
  if (check == Check::kSizes) {
    return faults_of_sizes(state_->file_system, state_->path, state_->manifest);
  }
  return faults_of_files(state_->file_system, state_->path, state_->manifest,
                         share_of_files(state_->manifest, 0, 1));
}

bool Reader::contains(std::string_view name) const {
  return state_->manifest.tensors.contains(name);
}

const TensorInfo& Reader::info(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  if (found != state_->tensors.end()) return found->second;
  throw FileError("[" + state_->path.string() + "] holds no tensor \"" + std::string(name) +
                  "\"; it holds " + std::to_string(state_->tensors.size()) + " others");
}

void Reader::read(std::string_view name, const tensor::Tensor& destination, Cast cast) const {
  const tensor::Shape& shape = info(name).shape;
  if (destination.shape() != shape) {
    throw FileError("[" + state_->path.string() + "] tensor \"" + std::string(name) + "\" is " +
                    shape.to_string() + "; expected " + destination.shape().to_string());
  }
  read(name, Region::whole(shape), destination, cast);
}

void Reader::read(std::string_view name, const Region& region, const tensor::Tensor& destination,
                  Cast cast) const {
  const TensorInfo& stored = info(name);
  const std::string where = "[" + state_->path.string() + "] tensor \"" + std::string(name) + "\"";
  region.validate(stored.shape);
  if (destination.numel() != region.numel()) {
    throw tensor::InvalidArgument(where + ": " + region.to_string(stored.shape) + " of " +
                                  stored.shape.to_string() + " has " +
                                  std::to_string(region.numel()) + " elements; got a destination " +
                                  destination.shape().to_string());
  }
  const auto& [key, tensor] = *state_->manifest.tensors.find(name);
  fill(destination, stored.dtype, cast, where, [&](std::int64_t first, std::span<std::byte> out) {
    const auto count = static_cast<std::int64_t>(out.size() / size_of(stored.dtype));
    state_->pieces.read(state_->path, key, tensor, region.elements(first, first + count), out);
  });
}

}  // namespace penstock::checkpoint
