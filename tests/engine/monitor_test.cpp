// The files that monitors write: what readers find in them, and what is left of them after a full
// disk, a removed folder or an earlier run.
#include <algorithm>
#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "engine/append_file.h"
#include "engine/csv_monitor.h"
#include "engine/event_record.h"
#include "engine/monitors.h"
#include "engine/tensorboard_monitor.h"
#include "tests/engine/event_file_reader.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_folder.h"

namespace penstock::engine {
namespace {

using testing::FileEvent;
using testing::message;
using testing::TemporaryFolder;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

void write(Monitor& monitor, const std::string& tag, double value, std::int64_t samples) {
  const Metric metric{tag, value};
  monitor.write({&metric, 1}, samples);
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  std::ranges::sort(files);
  return files;
}

// Files of this process cannot grow past a size, while this lives: a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

// --- event files
TEST(EventRecord, ChecksumIsThatOfCastagnoli) {
  // RFC 3720, B.4, and the check value of the CRC catalogues.
  for (const auto& crc : {crc32c, +[](std::string_view bytes) {
                            return testing::bitwise_crc32c(std::string(bytes));
                          }}) {
    EXPECT_EQ(crc("123456789"), 0xE3069283U);
    EXPECT_EQ(crc(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(crc(std::string(32, '\xFF')), 0x62A8AB43U);
  }
}

TEST(TensorboardMonitor, WritesWhatADecoderOfTheFormatReads) {
  const TemporaryFolder folder;
  TensorboardMonitor monitor(folder.path());
  const std::vector<Metric> metrics{{"Train/Samples/train_loss", 2.5}, {"Train/Samples/lr", 1e-3}};
  monitor.write(metrics, 8);
  const std::int64_t far = 3'000'000'000'000;  // a varint of many bytes
  write(monitor, "Train/Samples/eval_loss", std::numeric_limits<double>::infinity(), far);

  const auto files = files_in(folder.path());
  ASSERT_EQ(files.size(), 1u);
  const std::string name = files[0].filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  const std::vector<FileEvent> events = testing::read_event_file(files[0]);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  EXPECT_TRUE(events[1].run_begins);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 8);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"Train/Samples/train_loss", 2.5F},
                                                             {"Train/Samples/lr", 1e-3F}}));
  EXPECT_EQ(events[3].step, far);
  EXPECT_EQ(events[3].scalars.at("Train/Samples/eval_loss"),
            std::numeric_limits<float>::infinity());
}

TEST(TensorboardMonitor, AResumedRunBeginsAFileThatSortsLastAndSaysWhere) {
  const TemporaryFolder folder;
  for (const std::int64_t begin : {0, 8, 8}) {  // within a second, as a rule
    TensorboardMonitor monitor(folder.path());
    monitor.begin_at(begin);
    write(monitor, "loss", static_cast<double>(begin), begin + 8);
  }
  const auto files = files_in(folder.path());
  ASSERT_EQ(files.size(), 3u);
  const std::int64_t starts[] = {1, 9, 9};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::vector<FileEvent> events = testing::read_event_file(files[i]);
    ASSERT_EQ(events.size(), 3u);
    EXPECT_TRUE(events[1].run_begins);
    EXPECT_EQ(events[1].step, starts[i]);
    EXPECT_EQ(events[2].step, starts[i] + 7);
  }
}

TEST(TensorboardMonitor, HoldsWholeRecordsAfterAFullDisk) {
  const TemporaryFolder folder;
  TensorboardMonitor monitor(folder.path());
  write(monitor, "loss", 1.0, 1);
  const auto file = files_in(folder.path()).at(0);
  const auto size = std::filesystem::file_size(file);
  {
    const FullDisk disk(size + 10);
    EXPECT_NE(message<tensor::Error>([&] {
                write(monitor, "loss", 2.0, 2);
              }).find("[monitor] " + file.string() + " cannot be written: "),
              std::string::npos);
    EXPECT_EQ(std::filesystem::file_size(file), size);
  }
  write(monitor, "loss", 3.0, 3);
  const std::vector<FileEvent> events = testing::read_event_file(file);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[3].step, 3);
}

TEST(AppendFile, NoRoomForTheHeadLeavesNothingOfIt) {
  const TemporaryFolder folder;
  AppendFile file(folder / "file", "a head\n");
  {
    const FullDisk disk(3);
    EXPECT_THROW(file.append("a line\n"), tensor::Error);
    EXPECT_EQ(text_of(folder / "file"), "");
  }
  file.append("a line\n");
  EXPECT_EQ(text_of(folder / "file"), "a head\na line\n");
}

// --- CSV
TEST(CsvMonitor, HasDeepSpeedsNamesAndHeader) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.path());
  const std::vector<Metric> metrics{{"Train/Samples/train_loss", 0.1}, {"Train/Samples/lr", 1e-5}};
  monitor.write(metrics, 8);
  monitor.write(metrics, 16);
  write(monitor, "my own", std::numeric_limits<double>::quiet_NaN(), 16);
  EXPECT_EQ(text_of(folder / "Train_Samples_train_loss.csv"), "step,train_loss\n8,0.1\n16,0.1\n");
  EXPECT_EQ(text_of(folder / "Train_Samples_lr.csv"), "step,lr\n8,1e-05\n16,1e-05\n");
  EXPECT_EQ(text_of(folder / "my_own.csv"), "step,my own\n16,nan\n");
  EXPECT_EQ(files_in(folder.path()).size(), 3u);
}

TEST(CsvMonitor, AResumedRunGoesOnWhereItsCheckpointWas) {
  const TemporaryFolder folder;
  const auto file = folder / "loss.csv";
  {
    CsvMonitor monitor(folder.path());
    for (const int samples : {8, 16, 24}) write(monitor, "loss", 1.0, samples);
  }
  CsvMonitor monitor(folder.path());
  monitor.begin_at(16);
  write(monitor, "loss", 2.0, 24);
  EXPECT_EQ(text_of(file), "step,loss\n8,1\n16,1\n24,2\n");
  EXPECT_EQ(text_of(folder / "loss.csv.old"), "step,loss\n8,1\n16,1\n24,1\n");

  monitor.begin_at(8);  // a checkpoint is loaded in the middle of a run
  write(monitor, "loss", 3.0, 16);
  EXPECT_EQ(text_of(file), "step,loss\n8,1\n16,3\n");
  EXPECT_EQ(files_in(folder.path()).size(), 2u);
}

TEST(CsvMonitor, ATornLineAndAMissingHeaderAreMended) {
  const TemporaryFolder folder;
  const auto file = folder / "loss.csv";
  write_text(file, "8,1\n16,1.2");
  CsvMonitor monitor(folder.path());
  monitor.begin_at(16);
  write(monitor, "loss", 2.0, 24);
  EXPECT_EQ(text_of(file), "step,loss\n8,1\n24,2\n");
}

TEST(CsvMonitor, OneBadFileDoesNotKeepTheOthersFromTheirPoints) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a.csv");
  CsvMonitor monitor(folder.path());
  const std::vector<Metric> metrics{{"a", 1.0}, {"b", 2.0}};
  EXPECT_NE(message<tensor::Error>([&] { monitor.write(metrics, 8); }).find("a.csv cannot be"),
            std::string::npos);
  EXPECT_EQ(text_of(folder / "b.csv"), "step,b\n8,2\n");
}

// --- what happens to a monitor
struct Told {
  std::vector<std::string> warnings, infos;
  Monitors::Tell tell() {
    return [this](tensor::LogLevel level, std::string text) {
      (level == tensor::LogLevel::kWarning ? warnings : infos).push_back(std::move(text));
    };
  }
};

Config with_csv(const std::filesystem::path& folder) {
  Config config;
  config.csv_monitor = {.enabled = true, .output_path = folder.string(), .job_name = "job"};
  return config;
}

TEST(Monitors, WarnOnceAndGoOnWhenTheFolderIsBack) {
  const TemporaryFolder folder;
  Monitors monitors(with_csv(folder.path()));
  Told told;
  const std::vector<Metric> metrics{{"loss", 1.0}};
  monitors.write(metrics, 8, told.tell());
  std::filesystem::remove_all(folder / "job");
  write_text(folder / "job", "in the way");
  monitors.write(metrics, 16, told.tell());
  monitors.write(metrics, 24, told.tell());
  ASSERT_EQ(told.warnings.size(), 1u);
  EXPECT_NE(told.warnings[0].find("csv_monitor: [monitor] " + (folder / "job/loss.csv").string() +
                                  " cannot be opened: Not a directory"),
            std::string::npos)
      << told.warnings[0];
  EXPECT_NE(told.warnings[0].find("points from 16 samples on are missing"), std::string::npos);
  EXPECT_TRUE(told.infos.empty());

  std::filesystem::remove(folder / "job");
  std::filesystem::create_directory(folder / "job");
  monitors.write(metrics, 32, told.tell());
  EXPECT_EQ(told.warnings.size(), 1u);
  EXPECT_EQ(told.infos,
            std::vector<std::string>{
                "csv_monitor: can be written again; the points of 2 calls are missing"});
  EXPECT_EQ(text_of(folder / "job/loss.csv"), "step,loss\n32,1\n");
}

TEST(Monitors, AFolderThatCannotBeMadeIsAConfigurationError) {
  const TemporaryFolder folder;
  write_text(folder / "job", "in the way");
  Config config = with_csv(folder.path());
  const std::string path = (folder / "job").string();
  EXPECT_EQ(message<ConfigError>([&] {
              Monitors{config};
            }).find("[config] csv_monitor: " + path + " (output_path / job_name) cannot be"),
            0u);
  std::swap(config.csv_monitor, config.tensorboard);
  EXPECT_EQ(message<ConfigError>([&] { Monitors{config}; }).find("[config] tensorboard: " + path),
            0u);
  EXPECT_TRUE(Monitors(Config{}).empty());
}

}  // namespace
}  // namespace penstock::engine
