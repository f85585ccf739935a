#include "tests/support/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::testing {

namespace fs = std::filesystem;
using checkpoint::FileError;
using checkpoint::FileKind;

namespace {

using Bytes = std::vector<std::byte>;

[[noreturn]] void fail(const fs::path& path, const std::string& action, const std::string& reason) {
  throw FileError("[" + path.string() + "] cannot " + action + ": " + reason);
}

// What of unsynced bytes is on the disk.
Bytes surviving_bytes(const Bytes& synced, const Bytes& written, Survivors survivors,
                      std::mt19937_64& random) {
  if (survivors == Survivors::kNone) return synced;
  if (survivors == Survivors::kAll || synced == written) return written;
  Bytes bytes = written;
  bytes.resize(std::max<std::size_t>(synced.size(), random() % (written.size() + 1)));
  if (survivors == Survivors::kAny && random() % 2 == 0) {
    for (std::size_t i = synced.size(); i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random());
    }
  }
  return bytes;
}

}  // namespace

struct MemoryFileSystem::Node {
  // One change of a directory, undone or done as a whole.
  struct Change {
    std::string removed;  // empty: none
    std::string added;    // empty: none
    NodePtr node;         // of the added name
  };
  using Entries = std::map<std::string, NodePtr>;

  bool directory = false;
  Bytes written;
  Bytes synced;
  Entries entries;
  Entries synced_entries;
  std::vector<Change> unsynced;

  static void apply(const Change& change, Entries& entries) {
    if (!change.removed.empty()) entries.erase(change.removed);
    if (!change.added.empty()) entries[change.added] = change.node;
  }
  void change(Change change) {
    apply(change, entries);
    unsynced.push_back(std::move(change));
  }
};

class MemoryFileSystem::Writer : public checkpoint::FileWriter {
 public:
  Writer(MemoryFileSystem& owner, fs::path path, NodePtr node)
      : owner_(owner), path_(std::move(path)), node_(std::move(node)) {}

  void write(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.step("write " + path_.string());
    node_->written.insert(node_->written.end(), bytes.begin(), bytes.end());
  }
  void sync() override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.step("sync " + path_.string());
    node_->synced = node_->written;
  }
  void close() override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.step("close " + path_.string());
  }

 private:
  MemoryFileSystem& owner_;
  fs::path path_;
  NodePtr node_;
};

class MemoryFileSystem::Reader : public checkpoint::FileReader {
 public:
  Reader(MemoryFileSystem& owner, fs::path path, NodePtr node)
      : owner_(owner), path_(std::move(path)), node_(std::move(node)) {}

  std::uint64_t size() const override {
    const std::lock_guard lock(owner_.mutex_);
    return node_->written.size();
  }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    const std::lock_guard lock(owner_.mutex_);
    owner_.require_power();
    if (offset + bytes.size() > node_->written.size()) fail(path_, "read", "the file ends before");
    if (!bytes.empty()) std::memcpy(bytes.data(), node_->written.data() + offset, bytes.size());
  }

 private:
  MemoryFileSystem& owner_;
  fs::path path_;
  NodePtr node_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) {
  root_->directory = true;
}
MemoryFileSystem::~MemoryFileSystem() = default;

std::vector<std::string> MemoryFileSystem::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void MemoryFileSystem::forget_operations() {
  const std::lock_guard lock(mutex_);
  operations_.clear();
}

void MemoryFileSystem::lose_power_at(std::size_t operation) {
  const std::lock_guard lock(mutex_);
  power_ends_ = operation;
}

void MemoryFileSystem::restart_process() {
  const std::lock_guard lock(mutex_);
  power_ends_ = SIZE_MAX;
  power_lost_ = false;
  operations_.clear();
}

void MemoryFileSystem::fail_at(std::size_t operation) {
  const std::lock_guard lock(mutex_);
  fails_ = operation;
}

void MemoryFileSystem::require_power() const {
  if (power_lost_) throw PowerLost();
}

void MemoryFileSystem::step(const std::string& operation) {
  const std::size_t number = operations_.size();
  power_lost_ |= number >= power_ends_;
  require_power();
  operations_.push_back(operation);
  if (number == fails_) {
    fails_ = SIZE_MAX;
    throw FileError("[" + operation + "] No space left on device");
  }
}

MemoryFileSystem::NodePtr MemoryFileSystem::find(const fs::path& path) const {
  NodePtr node = root_;
  for (const fs::path& part : path.relative_path()) {
    if (part.empty() || part == ".") continue;
    const auto entry = node->entries.find(part.string());
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

MemoryFileSystem::NodePtr MemoryFileSystem::need(const fs::path& path, const char* action) const {
  NodePtr node = find(path);
  if (node == nullptr) fail(path, action, "No such file or directory");
  return node;
}

MemoryFileSystem::NodePtr MemoryFileSystem::need_parent(const fs::path& path,
                                                        const char* action) const {
  NodePtr node = find(path.parent_path());
  if (node == nullptr) fail(path, action, "No such file or directory");
  if (!node->directory) fail(path, action, "Not a directory");
  return node;
}

std::unique_ptr<checkpoint::FileWriter> MemoryFileSystem::create(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  step("create " + path.string());
  const NodePtr parent = need_parent(path, "create");
  NodePtr node = find(path);
  if (node == nullptr) {
    node = std::make_shared<Node>();
    parent->change({"", path.filename().string(), node});
  }
  if (node->directory) fail(path, "create", "Is a directory");
  node->written.clear();
  return std::make_unique<Writer>(*this, path, node);
}

std::unique_ptr<checkpoint::FileReader> MemoryFileSystem::open(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  require_power();
  const NodePtr node = need(path, "open");
  if (node->directory) fail(path, "open", "is not a file");
  return std::make_unique<Reader>(*this, path, node);
}

FileKind MemoryFileSystem::kind(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  require_power();
  const NodePtr node = find(path);
  if (node == nullptr) return FileKind::kMissing;
  return node->directory ? FileKind::kDirectory : FileKind::kFile;
}

std::vector<std::string> MemoryFileSystem::list(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  require_power();
  const NodePtr node = need(directory, "list");
  if (!node->directory) fail(directory, "list", "Not a directory");
  std::vector<std::string> names;
  for (const auto& [name, unused] : node->entries) names.push_back(name);
  return names;
}

void MemoryFileSystem::make_directory(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  step("make_directory " + directory.string());
  const NodePtr parent = need_parent(directory, "make the directory");
  if (find(directory) != nullptr) fail(directory, "make the directory", "File exists");
  const NodePtr node = std::make_shared<Node>();
  node->directory = true;
  parent->change({"", directory.filename().string(), node});
}

void MemoryFileSystem::rename(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(mutex_);
  step("rename " + from.string() + " " + to.string());
  const NodePtr node = need(from, "rename");
  const NodePtr parent = need_parent(from, "rename");
  if (need_parent(to, "rename") != parent) fail(from, "rename", "another directory: not modelled");
  const NodePtr target = find(to);
  if (target != nullptr && (target->directory || node->directory)) {
    fail(from, "rename to " + to.string(), "File exists");
  }
  parent->change({from.filename().string(), to.filename().string(), node});
}

void MemoryFileSystem::remove_all(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  require_power();
  if (const NodePtr node = find(path)) remove_entries(path, node);
}

void MemoryFileSystem::remove_entries(const fs::path& path, const NodePtr& node) {
  const Node::Entries entries = node->entries;  // a copy: the loop removes them
  for (const auto& [name, child] : entries) remove_entries(path / name, child);
  step("remove " + path.string());
  need_parent(path, "remove")->change({path.filename().string(), "", nullptr});
}

void MemoryFileSystem::sync_directory(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  step("sync_directory " + directory.string());
  const NodePtr node = need(directory, "sync");
  if (!node->directory) fail(directory, "sync", "Not a directory");
  node->synced_entries = node->entries;
  node->unsynced.clear();
}

MemoryFileSystem::NodePtr MemoryFileSystem::survivor(const Node& node, Survivors survivors,
                                                     std::mt19937_64& random) {
  auto result = std::make_shared<Node>();
  result->directory = node.directory;
  result->written = surviving_bytes(node.synced, node.written, survivors, random);
  result->synced = result->written;
  Node::Entries entries = node.synced_entries;
  const std::size_t prefix = random() % (node.unsynced.size() + 1);
  for (std::size_t i = 0; i < node.unsynced.size(); ++i) {
    const bool survives = survivors == Survivors::kAll ||
                          (survivors == Survivors::kPrefix && i < prefix) ||
                          (survivors == Survivors::kAny && random() % 2 == 0);
    if (survives) Node::apply(node.unsynced[i], entries);
  }
  for (const auto& [name, child] : entries) {
    result->entries[name] = survivor(*child, survivors, random);
  }
  result->synced_entries = result->entries;
  return result;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::after_power_loss(Survivors survivors,
                                                                     std::uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  auto result = std::make_unique<MemoryFileSystem>();
  result->root_ = survivor(*root_, survivors, random);
  return result;
}

}  // namespace penstock::testing
