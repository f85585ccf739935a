#include "checkpoint/saver.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>

#include "checkpoint/agreement.h"
#include "checkpoint/hash.h"
#include "checkpoint/safetensors.h"
#include "comm/communicator.h"
#include "comm/world.h"
#include "tensor/error.h"

namespace penstock::checkpoint {
namespace {

constexpr std::string_view kDataSuffix = ".safetensors";
constexpr std::string_view kWhere = "save";
constexpr std::size_t kMostUnsynced = 64;  // open files
constexpr std::string_view kNothingSaved = "nothing was saved";

void validate_file_name(const std::string& file) {
  if (file.size() <= kDataSuffix.size() || !file.ends_with(kDataSuffix) || file.front() == '.' ||
      file.find_first_of("/\\") != std::string::npos) {
    throw tensor::InvalidArgument("[save] the file name \"" + file +
                                  "\"; expected a plain name ending in .safetensors");
  }
}

void validate_piece(const Piece& piece) {
  piece.region.validate(piece.shape);
  const auto fail = [&](const std::string& what) {
    throw tensor::InvalidArgument("[save] tensor \"" + piece.name + "\" " + what);
  };
  if (!piece.data.defined()) fail("has no data");
  if (piece.data.device().type != tensor::DeviceType::kCpu) {
    fail("is " + piece.data.to_string() + "; expected cpu; copy it there first");
  }
  if (piece.data.numel() != piece.region.numel()) {
    fail("is given as " + piece.data.to_string() + " for " + piece.region.to_string(piece.shape) +
         " of " + piece.shape.to_string() + "; expected " + std::to_string(piece.region.numel()) +
         " elements");
  }
}

// The pieces of a file that are stored: those with elements, and those of tensors that have none.
std::vector<const Piece*> stored_pieces(const FilePlan& file) {
  std::vector<const Piece*> pieces;
  for (const Piece& piece : file.pieces) {
    if (piece.region.numel() > 0 || piece.shape.numel() == 0) pieces.push_back(&piece);
  }
  return pieces;
}

// What the manifest says of one file.
Manifest manifest_of(const FilePlan& file, const FileDigest& digest) {
  Manifest result;
  result.files.emplace(file.file, FileFacts{digest.bytes, digest.checksum});
  const std::vector<const Piece*> pieces = stored_pieces(file);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = *pieces[i];
    Manifest one;
    one.tensors[piece.name] = {
        piece.data.dtype(),
        piece.shape,
        {{file.file, piece.region.normalized(piece.shape), digest.tensor_checksums[i]}}};
    merge(result, one);
  }
  return result;
}

// What one rank will write, with sizes and checksums still zero.
Manifest plan_of(const SaveRequest& request) {
  Manifest plan;
  for (const FilePlan& file : request.files) {
    validate_file_name(file.file);
    for (const Piece& piece : file.pieces) validate_piece(piece);
    FileDigest unknown;
    unknown.tensor_checksums.resize(file.pieces.size());
    merge(plan, manifest_of(file, unknown));
  }
  return plan;
}

// The parts of a request that must be the same on all ranks, as text.
std::string common_text(const SaveRequest& request) {
  return "tag \"" + request.tag + "\", directory " + request.directory.string() + ", keep_last " +
         std::to_string(request.keep_last) + (request.save_latest ? "" : ", without `latest`");
}

// The manifests of all ranks together, checked.
Manifest merged(const std::vector<std::string>& texts) {
  Manifest all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    merge(all, parse_manifest("rank " + std::to_string(rank), texts[rank]));
  }
  check_tiling(all);
  return all;
}

Manifest complete_manifest(const std::vector<std::string>& texts) {
  Manifest manifest = merged(texts);
  manifest.saved_at = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return manifest;
}

}  // namespace

Saver::Saver(comm::World& world, SaveRequest request, FileSystem& file_system)
    : world_(world),
      leads_(world.rank() == 0),
      request_(std::move(request)),
      file_system_(file_system),
      places_(request_.directory, request_.tag) {}

void Saver::validate() const {
  validate_tag(request_.tag);
  if (request_.directory.empty()) throw tensor::InvalidArgument("[save] the directory is empty");
  if (request_.keep_last < 0) {
    throw tensor::InvalidArgument("[save] keep_last is " + std::to_string(request_.keep_last) +
                                  "; expected 0 (all) or more");
  }
  if (leads() && !nlohmann::json::accept(request_.engine_json)) {
    throw tensor::InvalidArgument("[save] engine_json is not JSON");
  }
}

void Saver::prepare() {
  failure_ = failure_of([&] {
    validate();
    mine_ = plan_of(request_);
  });
  agree(world_, kWhere, failure_, kNothingSaved);
  const std::string common = common_text(request_);
  agree_same(world_, kWhere, checksum_of(common), common);
  const std::vector<std::string> plans = world_.all().all_gather_text(to_text(mine_));
  if (leads()) {
    failure_ = failure_of([&] {
      merged(plans);
      make_directories(file_system_, request_.directory);
      file_system_.remove_all(places_.temporary);
      file_system_.make_directory(places_.temporary);
      temporary_made_ = true;
    });
  }
  agree(world_, kWhere, failure_, kNothingSaved);
}

void Saver::write_file(const FilePlan& file) {
  std::vector<NamedTensor> tensors;
  for (const Piece* piece : stored_pieces(file)) {
    tensors.emplace_back(stored_name(piece->name, piece->shape, piece->region),
                         piece->region.stored_shape(piece->shape), piece->data);
  }
  std::unique_ptr<FileWriter> writer = file_system_.create(places_.temporary / file.file);
  merge(mine_, manifest_of(file, write_safetensors(*writer, tensors)));
  unsynced_.push_back(std::move(writer));
}

void Saver::sync_files(std::size_t most) {
  for (; unsynced_.size() > most; unsynced_.pop_front()) {
    unsynced_.front()->sync();
    unsynced_.front()->close();
  }
}

void Saver::write_engine_json() {
  write_text(file_system_, places_.temporary / kEngineFile, request_.engine_json);
  mine_.files.emplace(kEngineFile,
                      FileFacts{request_.engine_json.size(), checksum_of(request_.engine_json)});
}

void Saver::write(const std::atomic<bool>& stop) {
  mine_ = Manifest();
  failure_ = failure_of([&] {
    for (const FilePlan& file : request_.files) {
      if (stop) throw FileError("[" + places_.temporary.string() + "] was given up");
      write_file(file);
      sync_files(kMostUnsynced);
    }
    sync_files(0);
    if (leads()) write_engine_json();
    if (leads() || !request_.files.empty()) file_system_.sync_directory(places_.temporary);
  });
}

void Saver::exchange() {
  agree(world_, kWhere, failure_, kNothingSaved);
  std::vector<std::string> parts = world_.all().all_gather_text(to_text(mine_));
  if (leads()) parts_ = std::move(parts);
}

void Saver::publish() {
  if (!leads()) return;
  failure_ =
      failure_of([&] { checkpoint::publish(file_system_, places_, complete_manifest(parts_)); });
  if (!failure_ && request_.save_latest) {
    failure_ = failure_of([&] { point_latest(file_system_, places_); });
    if (failure_) *failure_ += "; the checkpoint is complete, but `latest` may not name it";
  }
  if (!failure_) warnings_ = remove_replaced(file_system_, places_, request_.keep_last);
}

SaveResult Saver::finish() {
  agree(world_, kWhere, failure_, "other tags are as they were");
  std::array<std::int64_t, 1> bytes{0};
  for (const auto& [name, facts] : mine_.files) bytes[0] += static_cast<std::int64_t>(facts.bytes);
  world_.all().all_reduce_wait(bytes, comm::ReduceOp::kSum);
  return {bytes[0], std::move(warnings_)};
}

void Saver::clean_up() noexcept {
  // What cannot be removed now is removed when the tag is saved again.
  if (temporary_made_) (void)failure_of([&] { file_system_.remove_all(places_.temporary); });
}

}  // namespace penstock::checkpoint
