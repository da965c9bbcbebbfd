#pragma once
// A fixture that gives each test its own folder.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/data/source.h>

namespace tessera::test {

class TemporaryFolder : public ::testing::Test {
 protected:
  TemporaryFolder()
      : folder_(std::filesystem::temp_directory_path() /
                ("tessera_data_" + std::to_string(::getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TemporaryFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  static bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

  std::filesystem::path folder_;
};

/// Returns the SampleError that get(index) throws as "REASON: text", or "no error".
inline std::string sample_error_of(const IndexedSource& source, std::int64_t index) {
  try {
    source.get(index);
  } catch (const SampleError& error) {
    return error.reason() + ": " + error.what();
  }
  return "no error";
}

}  // namespace tessera::test
