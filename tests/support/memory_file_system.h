// A file system in memory that can fail, or lose power, at any one operation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace penstock::testing {

// Thrown by every operation once the power is lost. Not a std::exception, as nothing that a program
// handles: it ends the rank as a kill would.
struct PowerLost {};

// What of the unsynced changes is on the disk after the power was lost.
enum class Survivors {
  kNone,    // only what was synced
  kAll,     // everything that was done
  kPrefix,  // the first few changes of each directory, and the first few bytes of each file
  kAny      // any of a directory's changes, in no order, and files cut or filled with garbage
};

// Files hold what was written, and what of it was synced; directories hold their entries, and the
// changes that no sync_directory has made durable. Operations that change something are numbered
// from 0; removing a directory takes one for every entry. May be used by several threads.
class MemoryFileSystem : public checkpoint::FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // The names of the operations so far: "sync /ckpt/a.tmp/x", in their order.
  std::vector<std::string> operations() const;
  void forget_operations();
  // The operation of this number, and all later ones, throw PowerLost and do nothing.
  void lose_power_at(std::size_t operation);
  // As if only the process had been killed: everything that was done is there, synced or not.
  void restart_process();
  // The operation of this number throws FileError("… No space left on device"), once.
  void fail_at(std::size_t operation);
  // What a machine finds that starts from this disk.
  std::unique_ptr<MemoryFileSystem> after_power_loss(Survivors survivors,
                                                     std::uint64_t seed = 0) const;

  std::unique_ptr<checkpoint::FileWriter> create(const std::filesystem::path& path) override;
  std::unique_ptr<checkpoint::FileReader> open(const std::filesystem::path& path) override;
  checkpoint::FileKind kind(const std::filesystem::path& path) override;
  std::vector<std::string> list(const std::filesystem::path& directory) override;
  void make_directory(const std::filesystem::path& directory) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_all(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& directory) override;

 private:
  struct Node;
  class Writer;
  class Reader;
  using NodePtr = std::shared_ptr<Node>;  // open files keep removed nodes alive

  // Null when there is none.
  NodePtr find(const std::filesystem::path& path) const;
  NodePtr need(const std::filesystem::path& path, const char* action) const;
  NodePtr need_parent(const std::filesystem::path& path, const char* action) const;
  // Counts an operation, or throws instead of it.
  void step(const std::string& operation);
  void require_power() const;
  void remove_entries(const std::filesystem::path& path, const NodePtr& node);
  static NodePtr survivor(const Node& node, Survivors survivors, std::mt19937_64& random);

  mutable std::mutex mutex_;
  NodePtr root_;
  std::vector<std::string> operations_;
  std::size_t power_ends_ = SIZE_MAX;
  std::size_t fails_ = SIZE_MAX;
  bool power_lost_ = false;
};

}  // namespace penstock::testing
