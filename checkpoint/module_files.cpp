#include "checkpoint/module_files.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/agreement.h"
#include "checkpoint/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard_index.h"
#include "comm/communicator.h"
#include "comm/world.h"

namespace penstock::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "save_module";
constexpr std::string_view kNothingSaved = "nothing was saved";
constexpr char kEndOfName = '\0';

class ModuleSaver {
 public:
  ModuleSaver(comm::World& world, const fs::path& folder, std::span<const NamedTensor> tensors,
              FileSystem& file_system)
      : world_(world),
        tensors_(tensors),
        files_(file_system),
        target_(folder.has_filename() ? folder : folder.parent_path()),
        temporary_(target_.string() + std::string(kTemporarySuffix)),
        old_(target_.string() + std::string(kOldSuffix)) {}

  void save() {
    agree_same(world_, kWhere, checksum_of(target_.string()), target_.string());
    agree(world_, kWhere, failure_of([&] {
            if (!target_.has_filename()) throw FileError("the folder has no name");
            if (leads()) prepare();
          }),
          kNothingSaved);
    agree(world_, kWhere, gather_and_write(), kNothingSaved);
    agree(world_, kWhere, failure_of([&] {
            if (leads()) publish();
          }),
          "an earlier version is kept");
  }

  // After an agreement failed: no rank is writing any more.
  void clean_up() noexcept {
    if (prepared_) (void)failure_of([&] { files_.remove_all(temporary_); });
  }

 private:
  bool leads() const { return world_.rank() == 0; }

  fs::path parent() const {
    return target_.parent_path().empty() ? fs::path(".") : target_.parent_path();
  }

  void prepare() {
    const FileKind kind = files_.kind(target_);
    if (kind == FileKind::kFile || kind == FileKind::kOther) {
      throw FileError("[" + target_.string() + "] " + std::string(name_of(kind)) +
                      "; expected a folder to be made");
    }
    if (kind == FileKind::kDirectory) {
      for (const std::string& name : files_.list(target_)) {
        if (is_weights_file(name)) continue;
        throw FileError("[" + target_.string() + "] holds " + name +
                        "; expected a new folder, or one with weights alone, which are replaced");
      }
    }
    make_directories(files_, parent());
    files_.remove_all(temporary_);
    files_.make_directory(temporary_);
    prepared_ = true;
  }

  // Collective but for the writing. What went wrong with that, if anything.
  std::optional<std::string> gather_and_write() {
    std::string names;
    for (const NamedTensor& tensor : tensors_) names += tensor.name + kEndOfName;
    const std::vector<std::string> by_rank = world_.all().all_gather_text(names);
    std::array<std::int64_t, 1> bytes{0};
    for (const NamedTensor& tensor : tensors_) {
      bytes[0] += static_cast<std::int64_t>(tensor.data.nbytes());
    }
    world_.all().all_reduce_wait(bytes, comm::ReduceOp::kSum);
    total_bytes_ = bytes[0];
    return failure_of([&] {
      const int mine = number_shards(by_rank);
      if (mine < 0) return;
      write_safetensors(temporary_ / shard_file(mine, shards_), tensors_, {}, files_);
    });
  }

  // Fills in the index. Returns the number of this rank's file, -1 if it writes none.
  int number_shards(const std::vector<std::string>& names_by_rank) {
    const auto holds = [](const std::string& names) { return !names.empty(); };
    const auto holders = static_cast<int>(std::ranges::count_if(names_by_rank, holds));
    shards_ = std::max(1, holders);
    int next = 0, mine = -1;
    for (std::size_t rank = 0; rank < names_by_rank.size(); ++rank) {
      const std::string& names = names_by_rank[rank];
      const bool writes = holds(names) || (holders == 0 && rank == 0);
      if (!writes) continue;
      if (static_cast<int>(rank) == world_.rank()) mine = next;
      for (std::size_t begin = 0; begin < names.size();) {
        const std::size_t end = names.find(kEndOfName, begin);
        const std::string name = names.substr(begin, end - begin);
        if (!index_.emplace(name, shard_file(next, shards_)).second) {
          throw FileError("tensor \"" + name + "\" is given twice; expected one rank to give it");
        }
        begin = end + 1;
      }
      ++next;
    }
    return mine;
  }

  void publish() {
    if (shards_ > 1) {
      write_text(files_, temporary_ / kShardIndexFile, to_text(index_, total_bytes_));
    }
    files_.sync_directory(temporary_);
    const bool replaces = files_.kind(target_) != FileKind::kMissing;
    if (replaces) {
      files_.remove_all(old_);
      files_.rename(target_, old_);
    }
    try {
      files_.rename(temporary_, target_);
    } catch (const FileError&) {
      if (replaces) (void)failure_of([&] { files_.rename(old_, target_); });
      throw;
    }
    files_.sync_directory(parent());
    files_.remove_all(old_);
  }

  comm::World& world_;
  std::span<const NamedTensor> tensors_;
  FileSystem& files_;
  fs::path target_, temporary_, old_;
  ShardIndex index_;
  int shards_ = 1;
  std::int64_t total_bytes_ = 0;
  bool prepared_ = false;
};

}  // namespace

void save_module_files(comm::World& world, const fs::path& folder,
                       std::span<const NamedTensor> tensors, FileSystem& file_system) {
  ModuleSaver saver(world, folder, tensors, file_system);
  try {
    saver.save();
  } catch (const FileError&) {
    saver.clean_up();
    throw;
  }
}

}  // namespace penstock::checkpoint
